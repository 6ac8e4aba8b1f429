"""A Bayesian search for the first error: chains, priors, their fit, and the estimator."""
