"""How figures and texts are drawn: grids, progress, plots."""
