"""The viewer of labelled solutions: its index, its server, and the data for its pages."""
