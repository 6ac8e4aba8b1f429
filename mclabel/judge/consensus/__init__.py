"""Combines the opinions of several judges, and the rollouts of a run, into labels."""
