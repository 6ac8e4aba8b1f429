"""`mclabel eval processbench`."""
