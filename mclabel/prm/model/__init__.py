"""The networks that score steps."""
