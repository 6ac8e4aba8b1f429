"""Checks that the files of a run are unchanged since they were written, and are consistent."""
