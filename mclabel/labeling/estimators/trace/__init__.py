"""The `trace` estimator, which labels errors and their repairs in solutions that correct
themselves.
"""
