"""Values of answers (exact numbers, closed forms, units and sets) and arithmetic with them."""
