"""Reinforcement learning with process rewards: step values, credit, and where trainers take them.

`client` and `adapters` need nothing but Python, so that they run in the environment of a
trainer that pins other libraries than mclabel does.
"""
