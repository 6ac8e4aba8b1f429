"""Generated problems whose steps can be checked exactly, and small models bundled for them."""
