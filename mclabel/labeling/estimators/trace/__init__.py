"""The `trace` estimator, which labels errors and repairs in solutions that correct themselves."""
