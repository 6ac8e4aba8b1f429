"""A plain function as a checker: `checker=my_package.grading:is_right`.

The function's parameters are filled by name, so it takes what it needs of

- `completion`: the whole solution, text;
- `gold`: the problem's answer, text, or data where the source holds an object or a list;
- `problem`: the `Problem`;
- `meta`: the other columns of the problem's row that were kept, texts by name,

and keyword arguments from the configuration. It returns True (right), False (wrong), None (cannot
be decided) or a `Grade`, and may be a coroutine function. An exception counts as "cannot be
decided", and is the reason; what comes of a function that only raises is `guarded`'s.

A reward function of TRL, verl or reasoning-gym is taken as it stands, known by its
parameters:

- TRL: `f(prompts, completions, **columns) -> list[float | None]`;
- verl: `compute_score(data_source, solution_str, ground_truth, extra_info)`, which returns a number
  or a mapping with `score`;
- reasoning-gym: `score_answer(answer, entry) -> float`, a method of its data sets, too.

Each is called for one completion at a time. Columns are those of the problem's row: texts, but for
columns that hold an object. What a function names and no column has, such as `solution`, is the
gold where its name is one of `GOLD_NAMES`.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from numbers import Real
from typing import Any

from pydantic import Field

from mclabel.checkers.base import Aside, Checker, CheckerSettings, Grade, GradeItem, here
from mclabel.checkers.guarded import nonsense_grade, raised_grade
from mclabel.core.components import find_target
from mclabel.core.errors import ConfigError
from mclabel.core.records import Verdict
from mclabel.core.settings import MAX_AMOUNT

GIVEN = ("completion", "gold", "problem", "meta")
"""Names of parameters that are filled from an item."""
_VERDICTS = {True: Verdict.RIGHT, False: Verdict.WRONG, None: Verdict.UNKNOWN}


class FunctionChecker(Checker):
    """Calls a function for every completion, off the event loop."""

    class Settings(CheckerSettings):
        """Of a function that grades."""

        arguments: Mapping[str, Any] = {}
        """Keyword arguments of the function, beside what is given by name."""
        right_from: float = Field(1.0, ge=-MAX_AMOUNT, le=MAX_AMOUNT)
        """Smallest reward of a right completion, for a reward function in the form of TRL, verl or
        reasoning-gym."""
        chat: bool = False
        """Whether a reward function in TRL's form takes messages in place of texts."""

    def __init__(self, settings: Settings) -> None:
        """Find the function and see which parameters it has.

        Args:
            settings: whose `kind` is its `module:function`.

        Raises:
            ConfigError: it has a parameter that nothing fills.
        """
        self.name = settings.kind
        self._function: Callable[..., Any] = find_target("checkers", settings.kind)
        self._arguments = dict(settings.arguments)
        code = getattr(self._function, "__code__", None) or type(self._function).__call__.__code__
        self._file = code.co_filename
        self._right_from = settings.right_from
        self._reward = reward_form(self._function, self._arguments, settings.chat)
        self._given = (
            () if self._reward else _parameters(self.name, self._function, self._arguments)
        )
        self.version = _version(self._function)

    async def grade(self, items: Sequence[GradeItem], aside: Aside = here) -> list[Grade]:
        """Grade completions one after the other; see `Checker`."""
        return [await self._grade(item, aside) for item in items]

    def grade_now(self, item: GradeItem) -> Grade | None:
        """Grade one completion in the caller's thread; None if the function is a coroutine's."""
        call = partial(self._call(item), **self._arguments)
        if inspect.iscoroutinefunction(call.func):
            return None
        try:
            return self._graded(call())
        except Exception as error:  # whatever the user's code raises: it did not decide
            return raised_grade(error, self._file)

    async def _grade(self, item: GradeItem, aside: Aside) -> Grade:
        call = partial(self._call(item), **self._arguments)
        try:
            found = await call() if inspect.iscoroutinefunction(call.func) else await aside(call)
            return self._graded(found)
        except Exception as error:  # whatever the user's code raises: it did not decide
            return raised_grade(error, self._file)

    def _graded(self, found: Any) -> Grade:
        if self._reward is not None:
            return reward_grade(found, self._right_from)
        if isinstance(found, Grade):
            return found
        if found is None or isinstance(found, bool):
            return Grade(verdict=_VERDICTS[found], layer="function")
        return nonsense_grade(found, "True, False, None or a Grade")

    def _call(self, item: GradeItem) -> Callable[[], Any]:
        if self._reward is not None:
            return self._reward(item)
        values = {
            "completion": item.completion,
            "gold": item.problem.gold,
            "problem": item.problem,
            "meta": dict(item.problem.meta),
        }
        return partial(self._function, **{name: values[name] for name in self._given})


def _version(function: Callable[..., Any]) -> str:
    """A function's attribute `version` where it has one, else a hash of its source."""
    if (version := getattr(function, "version", None)) is not None:
        return str(version)
    try:
        source = inspect.getsource(function)
    except OSError:  # its file is not there
        return "unknown"
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def _parameters(
    name: str, function: Callable[..., Any], arguments: Mapping[str, Any]
) -> tuple[str, ...]:
    """Which of the names in `GIVEN` a function takes."""
    parameters = inspect.signature(function).parameters.values()
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    needed = {
        p.name
        for p in parameters
        if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    }
    if unfilled := sorted(needed - set(GIVEN) - set(arguments)):
        raise ConfigError(
            f"checker={name}: its parameter {', '.join(unfilled)} gets no value. Use only "
            f"parameters among {', '.join(GIVEN)}, or set checker.arguments"
        )
    if (unknown := sorted(set(arguments) - set(names))) and not takes_all:
        raise ConfigError(
            f"checker.arguments: {name} has no parameter {', '.join(unknown)}; it has "
            f"{', '.join(names) or 'none'}"
        )
    return GIVEN if takes_all else tuple(one for one in GIVEN if one in names)


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
