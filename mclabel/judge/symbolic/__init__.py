"""Finds numeric equalities in solution steps that are false, without any model.

Every chain of equalities in plain text or LaTeX is read and decided by the exact arithmetic of the
answer checker. Pure functions: no files, no engines.
"""

from mclabel.judge.symbolic.checking import Flag, check_steps

__all__ = ["Flag", "check_steps"]
