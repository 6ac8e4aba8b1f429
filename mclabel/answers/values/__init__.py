"""What answers mean: exact numbers, closed forms, units, sets, and arithmetic on them."""
