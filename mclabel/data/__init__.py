"""What comes in and goes out: problems, solutions, shards, exchange formats."""
