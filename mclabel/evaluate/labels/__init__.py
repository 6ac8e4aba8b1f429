"""`mclabel eval labels`: labels against exact truth or judgements."""
