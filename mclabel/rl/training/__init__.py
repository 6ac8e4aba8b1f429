"""Training of a policy by reinforcement learning: TRL trains, our engine samples, and credit is
given to steps.
"""
