"""Evaluations of labels, scorers and search methods, with confidence intervals."""
