"""Runs a task over items exactly once: blocks, leases, fleets, budget, forecast, stop."""
