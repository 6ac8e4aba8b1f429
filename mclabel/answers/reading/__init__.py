"""Parsers that convert the text of an answer to a form, its structured value."""
