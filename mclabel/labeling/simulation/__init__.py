"""Estimators without an engine: on pools of real rollouts, and on simulated values."""
