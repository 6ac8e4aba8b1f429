"""Checkers, which grade completions. A configuration chooses a checker by its name.

A checker is a class of this package that `CHECKERS` lists, a class of another package, or a plain
function `module:function` (`mclabel.checkers.function`).
"""

from __future__ import annotations

from collections.abc import Mapping

from mclabel.checkers.base import (
    Checker,
    CheckerSettings,
    Grade,
    GradeItem,
    ThreadRunner,
    read_recorded_checker,
    run_inline,
    validate_checker_settings,
)
from mclabel.checkers.guarded import make_checker

CHECKERS: Mapping[str, str] = {
    "code": "mclabel.checkers.code.checker:CodeChecker",
    "math": "mclabel.checkers.math:MathChecker",
}
"""Import path of each built-in checker, by its name in a configuration."""

__all__ = [
    "CHECKERS",
    "Checker",
    "CheckerSettings",
    "Grade",
    "GradeItem",
    "ThreadRunner",
    "make_checker",
    "read_recorded_checker",
    "run_inline",
    "validate_checker_settings",
]
