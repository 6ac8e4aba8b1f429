"""Pictures that are written to files."""
