"""Reinforcement learning with process rewards: a server that computes an advantage for each step of
a completion (its credit), a client, and adapters for trainers.

`client` has no dependencies, and each module of `adapters` needs only its trainer. So they also run
in environments in which mclabel's dependencies cannot be installed.
"""
