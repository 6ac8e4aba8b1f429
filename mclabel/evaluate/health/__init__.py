"""The health of a labelling run."""
