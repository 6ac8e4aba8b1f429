"""Process reward models: examples, networks, training, scoring."""
