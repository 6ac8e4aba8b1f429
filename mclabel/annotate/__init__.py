"""Annotation by hand: people label the steps of a run's solutions on a web page of this machine."""
