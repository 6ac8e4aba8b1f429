"""Shared parts of all HTTP servers: address, access control, limits and shutdown."""
