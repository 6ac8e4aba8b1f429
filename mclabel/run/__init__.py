"""Runs a task exactly once on every item of a job: plans blocks, leases them to workers, and tracks
cost.
"""
