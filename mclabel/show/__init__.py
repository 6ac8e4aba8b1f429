"""Drawing of figures and texts: grids, progress, plots."""
