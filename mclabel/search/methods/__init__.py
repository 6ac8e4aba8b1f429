"""The built-in search methods, a file each."""
