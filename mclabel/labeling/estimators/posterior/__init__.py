"""The `posterior` estimator, a Bayesian search for the first error, and the parts it consists of.

The parts are hidden Markov chains along solutions, their priors, the fit of the priors, and the
choice of rollouts.
"""
