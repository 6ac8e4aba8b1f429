"""Turns labelled solutions into training examples: token ids, and a target for each step."""
