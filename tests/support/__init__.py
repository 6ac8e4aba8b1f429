"""Simulated worlds, servers, faults and checks for several test modules."""
