"""Runs a task exactly once on every item of a job: blocks, leases, workers, budget, forecast."""
