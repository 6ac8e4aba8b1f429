"""The combined evidence of several judges and of rollouts on a solution."""
