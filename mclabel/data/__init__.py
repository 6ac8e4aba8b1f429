"""Input and output data: problems, solutions, steps and exchange formats."""
