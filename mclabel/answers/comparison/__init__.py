"""Decide whether two answers mean the same."""
