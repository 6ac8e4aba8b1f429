"""Finds false numeric equalities in solution steps, without any model.

The checks read every chain of equalities in plain text or LaTeX, and decide it with the exact
arithmetic of the answer checker. All functions are pure: they use neither files nor engines.
"""

from mclabel.judge.symbolic.checking import Flag, check_steps

__all__ = ["Flag", "check_steps"]
