"""Golds for programs, and a checker that grades programs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from mclabel.checkers import Grade, GradeItem
from mclabel.checkers.code.checker import CodeChecker
from mclabel.core.records import Problem


def code_checker(**settings: Any) -> CodeChecker:
    return CodeChecker(CodeChecker.Settings(kind="code", **settings))


def problem(gold: Any) -> Problem:
    is_json = not isinstance(gold, str)
    return Problem(
        id="p", text="?", answer=json.dumps(gold) if is_json else gold, answer_is_json=is_json
    )


def grades(checker: CodeChecker, gold: Any, completions: Sequence[str]) -> list[Grade]:
    items = [GradeItem(problem=problem(gold), completion=completion) for completion in completions]
    return list(asyncio.run(checker.grade(items, asyncio.to_thread)))


def refusal(checker: CodeChecker, gold: Any) -> str | None:
    return asyncio.run(checker.refuse(problem(gold)))
