"""The HTML report on labelling runs, trainings and evaluations."""
