"""The viewer of labelled solutions: its index, its server, its pages' data."""
