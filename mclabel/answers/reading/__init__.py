"""Readers that turn the text of an answer into its meaning."""
