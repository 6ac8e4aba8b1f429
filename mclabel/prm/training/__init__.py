"""Training of a step model: the training loop, losses, checkpoints and distributed workers."""
