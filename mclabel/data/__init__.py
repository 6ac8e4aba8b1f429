"""What comes in and goes out: problems, steps, shards."""
