"""The final answer of a text: marked, announced, or last."""
