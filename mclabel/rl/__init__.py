"""Reinforcement learning with process rewards: step values, credit, and adapters for trainers.

`client` has no dependencies, and each module of `adapters` needs only its trainer. They therefore
also run in an environment whose library versions do not fit mclabel.
"""
