"""Reinforcement learning with process rewards: step values, credit, and adapters for trainers.

`client` needs only Python and `adapters` only their trainers, so that they run in the environment
of a trainer whose library versions differ from those of mclabel.
"""
