"""A Bayesian reading of solutions that correct themselves: where they go wrong, and recover."""
