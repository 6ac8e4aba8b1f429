"""Labelled solutions as training examples."""
