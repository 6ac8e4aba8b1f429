"""Labelling of solution steps: prefixes, rollouts, estimator decisions and labels."""
