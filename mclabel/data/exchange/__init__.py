"""Exports to and imports from other people's formats."""
