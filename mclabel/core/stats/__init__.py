"""Values, intervals and exact path counting: the statistics behind a label."""
