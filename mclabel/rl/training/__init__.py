"""Training of a policy by reinforcement learning.

TRL trains the weights, mclabel's engine samples solutions, and each step gets its own credit.
"""
