"""`mclabel quickstart`: labels, trains and evaluates with bundled models."""
