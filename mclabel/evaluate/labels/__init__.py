"""`mclabel eval labels`: measures labels against the exact truth or human judgements."""
