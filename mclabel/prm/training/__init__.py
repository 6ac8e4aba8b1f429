"""Training of a step model: loop, losses, checkpoints, workers."""
