"""Adapters: how other trainers use the rewards of a server (docs/rl-trainers.md).

Each needs the package of its trainer and nothing else of what mclabel needs.
"""
