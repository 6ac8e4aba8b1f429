"""Can these labels be trusted: quality against truth, with intervals."""
