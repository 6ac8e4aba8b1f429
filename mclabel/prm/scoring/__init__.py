"""Scores of solutions by PRMs, ORMs and language models."""
