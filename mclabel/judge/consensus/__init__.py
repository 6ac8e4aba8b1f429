"""What several judges, and rollouts, say of a solution together."""
