"""People label the steps of a run's solutions by hand, in a page of this machine."""
