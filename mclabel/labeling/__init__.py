"""Labels the solutions of a problem: prefixes, rollouts, decisions, labels."""
