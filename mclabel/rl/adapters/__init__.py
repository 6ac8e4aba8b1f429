"""Adapters that let other trainers use the rewards of a server (docs/rl-trainers.md).

Each adapter needs the package of its trainer, but no other dependency of mclabel.
"""
