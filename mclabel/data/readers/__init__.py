"""Reads problems, solutions and judged solutions from files, URLs and the hub."""
