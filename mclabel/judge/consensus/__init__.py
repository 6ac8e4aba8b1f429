"""Combines the evidence of several judges and of rollouts on the solutions of a run."""
