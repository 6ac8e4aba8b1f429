"""Checks that the files of a run are what was written, and agree with each other."""
