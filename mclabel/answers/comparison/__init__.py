"""Decides whether an answer and a gold mean the same."""
