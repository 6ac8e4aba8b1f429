"""Adapters for other trainers, which get rewards from a reward server (docs/rl-trainers.md).

Each adapter needs the package of its trainer, but none of mclabel's dependencies.
"""
