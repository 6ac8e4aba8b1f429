"""The built-in search methods; those that go level by level share a file."""
