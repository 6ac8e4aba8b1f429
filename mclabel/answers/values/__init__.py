"""Values of answers: exact numbers, closed forms, units, sets, and arithmetic on them."""
