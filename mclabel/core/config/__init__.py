"""Reading of configurations: YAML files and `key=value` overrides, checked as a whole."""
