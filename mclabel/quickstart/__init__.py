"""`mclabel quickstart`: labelling, training and evaluation with bundled models."""
