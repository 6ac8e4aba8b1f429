"""What comes in and goes out: problems, solutions, steps, exchange formats."""
