"""Reads configurations from YAML files and `key=value` overrides, and checks them as a whole."""
