"""Worker processes that run sympy within limits on steps, memory and time."""
