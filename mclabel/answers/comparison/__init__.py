"""Whether two answers mean the same, under the rules."""
