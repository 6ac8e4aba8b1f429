"""The `posterior` estimator, a Bayesian search for the first error, and the parts it consists of.

They are hidden Markov chains, their priors, the fit of the priors, and the choice of rollouts.
"""
