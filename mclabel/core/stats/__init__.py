"""Statistics from which labels and evaluations are computed: values, intervals, bootstrap."""
