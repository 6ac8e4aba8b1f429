"""Shared parts of the HTTP servers: address, access, limits and shutdown."""
