"""Processes of their own for sympy: bounded in steps, memory and time."""
