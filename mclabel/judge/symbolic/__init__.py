"""Finds false numeric equalities in solution steps, without any model.

The checks read chains of equalities such as `2 + 3 = 5 = 10 / 2` in plain text or LaTeX, and decide
each with the exact arithmetic of the answer checker. All functions are pure: they use neither files
nor engines.
"""

from mclabel.judge.symbolic.checking import EqualityFlag, check_steps

__all__ = ["EqualityFlag", "check_steps"]
