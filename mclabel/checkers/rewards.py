"""Reward functions of other libraries as checkers, known by their parameters and taken as they are.

- TRL: `f(prompts, completions, **columns) -> list[float | None]`;
- verl: `compute_score(data_source, solution_str, ground_truth, extra_info)`, which returns a number
  or a mapping with `score`;
- reasoning-gym: `score_answer(answer, entry) -> float`, a method of its data sets, too.

Each is called for one completion at a time. Columns are those of the problem's row: texts, but for
columns that hold an object. What a function names and no column has, such as `solution`, is the
gold where its name is one of `GOLD_NAMES`.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from numbers import Real
from typing import Any

from mclabel.checkers.base import Grade, GradeItem
from mclabel.checkers.guarded import nonsense_grade
from mclabel.core.records import Verdict

GOLD_NAMES = ("answer", "solution", "ground_truth", "gold", "target", "label")
"""Names by which reward functions ask for the gold."""
ALLOWED = "a finite number, None, or a list or mapping of the library's own form that holds one"
_OPEN, _CLOSE = "<answer>", "</answer>"

Call = Callable[[], Any]
Bind = Callable[[GradeItem], Call]
"""From a completion to the call that scores it."""


def reward_form(function: Callable[..., Any], arguments: Iterable[str], chat: bool) -> Bind | None:
    """How a reward function of another library is called; None if it has none of their forms.

    Args:
        function: of somebody's own.
        arguments: names of parameters that the configuration fills.
        chat: whether a function in TRL's form takes messages in place of texts.
    """
    names = set(inspect.signature(function).parameters) - set(arguments)
    if "completions" in names:
        return partial(_trl, function, names, chat)
    if {"solution_str", "ground_truth"} <= names:
        return partial(_verl, function, names)
    if {"answer", "entry"} <= names:
        return partial(_reasoning_gym, function)
    return None


def reward_grade(found: Any, right_from: float) -> Grade:
    """The grade that a reward amounts to; None and NaN are unknown.

    Args:
        found: what the function returned.
        right_from: the smallest reward of a right completion.
    """
    if isinstance(found, list | tuple) and len(found) == 1:
        found = found[0]
    elif isinstance(found, Mapping):
        found = found.get("score", found)
    if hasattr(found, "item") and not isinstance(found, Mapping | list | tuple):
        found = found.item()  # a number of numpy or torch
    if found is None or (isinstance(found, Real) and math.isnan(found)):
        return Grade(verdict=Verdict.UNKNOWN, reason="no_reward", layer="function")
    if not isinstance(found, Real):
        return nonsense_grade(found, ALLOWED)
    verdict = Verdict.RIGHT if float(found) >= right_from else Verdict.WRONG
    return Grade(verdict=verdict, reason=f"reward:{float(found):.6g}", layer="function")


def _trl(function: Callable[..., Any], names: set[str], chat: bool, item: GradeItem) -> Call:
    prompt: Any = item.problem.text
    completion: Any = item.completion
    if chat:
        prompt = [{"role": "user", "content": prompt}]
        completion = [{"role": "assistant", "content": completion}]
    columns = {name: [value] for name, value in _columns(item, names).items()}
    given = {**columns, "prompts": [prompt], "completions": [completion]}
    parameters = inspect.signature(function).parameters.values()
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters)
    return partial(function, **{k: v for k, v in given.items() if takes_all or k in names})


def _verl(function: Callable[..., Any], names: set[str], item: GradeItem) -> Call:
    columns = _columns(item, names)
    given = {
        "data_source": columns.get("data_source", ""),
        "solution_str": item.completion,
        "ground_truth": item.problem.gold,
        "extra_info": columns.get("extra_info", columns),
    }
    return partial(function, **{name: value for name, value in given.items() if name in names})


def _reasoning_gym(function: Callable[..., Any], item: GradeItem) -> Call:
    """The answer is what stands in the last `<answer>`, as that library asks for, or all of it."""
    text = item.completion
    if (end := text.rfind(_CLOSE)) >= 0 and (start := text.rfind(_OPEN, 0, end)) >= 0:
        text = text[start + len(_OPEN) : end].strip()
    entry = {
        "question": item.problem.text,
        "answer": item.problem.gold,
        "metadata": _columns(item, set()).get("metadata", {}),
    }
    return partial(function, answer=text, entry=entry)


def _columns(item: GradeItem, names: set[str]) -> dict[str, Any]:
    """The columns of the problem's row, and the gold by the names that the function has for it."""
    columns: dict[str, Any] = {name: item.problem.gold for name in GOLD_NAMES if name in names}
    for name, text in item.problem.meta.items():
        columns[name] = json.loads(text) if text.startswith("{") and _is_json(text) else text
    return columns


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
