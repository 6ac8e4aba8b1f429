"""Checkers, which grade completions, behind one protocol and chosen by name.

A checker is a class here and a line in `CHECKERS`, a class in a package of your own, or a plain
function `module:function` (`mclabel.checkers.function`).
"""

from __future__ import annotations

from collections.abc import Mapping

from mclabel.checkers.base import (
    Aside,
    Checker,
    CheckerSettings,
    Grade,
    GradeItem,
    chosen_settings,
    here,
    recorded_checker,
)
from mclabel.checkers.guarded import make_checker

CHECKERS: Mapping[str, str] = {
    "code": "mclabel.checkers.code.checker:CodeChecker",
    "math": "mclabel.checkers.math:MathChecker",
}
"""Import path of each built-in checker, by its name in a configuration."""

__all__ = [
    "CHECKERS",
    "Aside",
    "Checker",
    "CheckerSettings",
    "Grade",
    "GradeItem",
    "chosen_settings",
    "here",
    "make_checker",
    "recorded_checker",
]
