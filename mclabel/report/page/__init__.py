"""The HTML report of runs, trainings and evaluations."""
