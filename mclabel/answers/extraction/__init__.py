"""Extraction of the final answer of a text: a marked, an announced or the last value."""
