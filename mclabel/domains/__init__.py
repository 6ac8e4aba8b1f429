"""Generated problems, the exact truth of their steps, and small models bundled for them."""
