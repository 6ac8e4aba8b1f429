"""Uses a plain function as a checker: `checker=my_package.grading:is_right`.

Arguments are passed by name, so the function declares only the parameters that it needs:

- `completion`: text of the whole solution;
- `gold`: the problem's answer: a text, or an object or list if the data set has one;
- `problem`: the `Problem`;
- `meta`: the other columns of the problem's row, as texts by name;
- any keyword arguments that the configuration sets.

The function returns True (right), False (wrong), None (no verdict) or a `Grade`, and may be a
coroutine function. If the function raises an exception, there is no verdict, and the exception
becomes the reason. The module `guarded` ends a job whose function always raises.

A reward function of TRL, verl or reasoning-gym can be used unchanged. It is recognised by its
parameters:

- TRL: `f(prompts, completions, **columns) -> list[float | None]`;
- verl: `compute_score(data_source, solution_str, ground_truth, extra_info)`, which returns a number
  or a mapping with `score`;
- reasoning-gym: `score_answer(answer, entry) -> float`, also as a method of its data sets.

A reward function is called for one completion at a time. The columns are the columns of the
problem's row, which are objects or texts. A parameter without a column, such as `solution`,
receives the gold if `GOLD_NAMES` lists its name.
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

from mclabel.checkers.base import (
    Checker,
    CheckerSettings,
    Grade,
    GradeItem,
    ThreadRunner,
    run_inline,
)
from mclabel.checkers.guarded import make_exception_grade, make_wrong_type_grade
from mclabel.core.components import find_target
from mclabel.core.errors import ConfigError
from mclabel.core.records import Verdict
from mclabel.core.settings import MAX_AMOUNT

ITEM_PARAMETERS = ("completion", "gold", "problem", "meta")
"""Names of parameters whose values are taken from the graded item."""
_VERDICTS = {True: Verdict.RIGHT, False: Verdict.WRONG, None: Verdict.UNKNOWN}


class FunctionChecker(Checker):
    """Calls a function for every completion, outside the event loop."""

    class Settings(CheckerSettings):
        """Settings of a checker that calls a function."""

        arguments: Mapping[str, Any] = {}
        """Keyword arguments of the function, in addition to parameters such as `completion` that
        are filled by their names."""
        right_from: float = Field(1.0, ge=-MAX_AMOUNT, le=MAX_AMOUNT)
        """Smallest reward of a right completion, for a reward function in the form of TRL, verl or
        reasoning-gym."""
        chat: bool = False
        """True if a reward function in TRL's form takes chat messages instead of texts."""

    def __init__(self, settings: Settings) -> None:
        """Import the function and inspect its parameters.

        Args:
            settings: settings whose `kind` is the function's `module:function`.

        Raises:
            ConfigError: the function has a parameter without a value.
        """
        self.name = settings.kind
        self._function: Callable[..., Any] = find_target("checkers", settings.kind)
        self._arguments = dict(settings.arguments)
        code = getattr(self._function, "__code__", None) or type(self._function).__call__.__code__
        self._file = code.co_filename
        self._right_from = settings.right_from
        self._reward = find_reward_adapter(self._function, self._arguments, settings.chat)
        self._parameter_names = (
            ()
            if self._reward
            else _list_item_parameters(self.name, self._function, self._arguments)
        )
        self.version = _read_version_or_hash_source(self._function)

    async def grade(
        self, items: Sequence[GradeItem], run_blocking: ThreadRunner = run_inline
    ) -> list[Grade]:
        """Return one grade per completion, in order, by calling the function for one at a time.

        Args:
            items: completions of one or several problems.
            run_blocking: function that runs blocking work outside the event loop.
        """
        return [await self._grade_item(item, run_blocking) for item in items]

    def grade_now(self, item: GradeItem) -> Grade | None:
        """Grade one completion in the caller's thread; return None for a coroutine function."""
        call = partial(self._bind_function_to_item(item), **self._arguments)
        if inspect.iscoroutinefunction(call.func):
            return None
        try:
            return self._convert_result_to_grade(call())
        except Exception as error:  # any exception of the user's code means undecided
            return make_exception_grade(error, self._file)

    async def _grade_item(self, item: GradeItem, run_blocking: ThreadRunner) -> Grade:
        call = partial(self._bind_function_to_item(item), **self._arguments)
        try:
            result = (
                await call() if inspect.iscoroutinefunction(call.func) else await run_blocking(call)
            )
            return self._convert_result_to_grade(result)
        except Exception as error:  # any exception of the user's code means undecided
            return make_exception_grade(error, self._file)

    def _convert_result_to_grade(self, result: Any) -> Grade:
        if self._reward is not None:
            return grade_from_reward(result, self._right_from)
        if isinstance(result, Grade):
            return result
        if result is None or isinstance(result, bool):
            return Grade(verdict=_VERDICTS[result], layer="function")
        return make_wrong_type_grade(result, "True, False, None or a Grade")

    def _bind_function_to_item(self, item: GradeItem) -> Callable[[], Any]:
        if self._reward is not None:
            return self._reward(item)
        values = {
            "completion": item.completion,
            "gold": item.problem.gold,
            "problem": item.problem,
            "meta": dict(item.problem.meta),
        }
        return partial(self._function, **{name: values[name] for name in self._parameter_names})


def _read_version_or_hash_source(function: Callable[..., Any]) -> str:
    """Return the function's attribute `version` if it has one, else a hash of its source."""
    if (version := getattr(function, "version", None)) is not None:
        return str(version)
    try:
        source = inspect.getsource(function)
    except OSError:  # the source file is missing
        return "unknown"
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def _list_item_parameters(
    name: str, function: Callable[..., Any], arguments: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return the names in `ITEM_PARAMETERS` that a function takes."""
    parameters = inspect.signature(function).parameters.values()
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    needed = {
        p.name
        for p in parameters
        if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    }
    if unfilled := sorted(needed - set(ITEM_PARAMETERS) - set(arguments)):
        raise ConfigError(
            f"checker={name}: its parameter {', '.join(unfilled)} gets no value. Use only the "
            f"parameters {', '.join(ITEM_PARAMETERS)}, or set others in checker.arguments"
        )
    if (unknown := sorted(set(arguments) - set(names))) and not takes_all:
        raise ConfigError(
            f"checker.arguments: {name} has no parameter {', '.join(unknown)}. Its parameters are "
            f"{', '.join(names) or 'none'}"
        )
    return tuple(name for name in ITEM_PARAMETERS if takes_all or name in names)


GOLD_NAMES = ("answer", "solution", "ground_truth", "gold", "target", "label")
"""Parameter names under which reward functions expect the gold."""
ALLOWED = "a finite number, None, or a list or mapping of the library's own form that holds one"
_OPEN, _CLOSE = "<answer>", "</answer>"

ScoringCall = Callable[[], Any]
RewardAdapter = Callable[[GradeItem], ScoringCall]
"""A function that returns, for a completion, the call that scores it."""


def find_reward_adapter(
    function: Callable[..., Any], arguments: Iterable[str], chat: bool
) -> RewardAdapter | None:
    """Return the adapter that calls a reward function in the form of another library.

    It is None if the function has the form of none of TRL, verl and reasoning-gym.

    Args:
        function: a function of the user.
        arguments: names of parameters whose values the configuration sets.
        chat: True if a function in TRL's form takes chat messages instead of texts.
    """
    names = set(inspect.signature(function).parameters) - set(arguments)
    if "completions" in names:
        return partial(_bind_trl_reward, function, names, chat)
    if {"solution_str", "ground_truth"} <= names:
        return partial(_bind_verl_reward, function, names)
    return partial(_bind_reasoning_gym_score, function) if {"answer", "entry"} <= names else None


def grade_from_reward(reward: Any, right_from: float) -> Grade:
    """Convert a reward to a grade. A reward of None or NaN gives an unknown verdict.

    Args:
        reward: return value of the reward function.
        right_from: smallest reward of a right completion.
    """
    if isinstance(reward, list | tuple) and len(reward) == 1:
        reward = reward[0]
    elif isinstance(reward, Mapping):
        reward = reward.get("score", reward)
    if hasattr(reward, "item") and not isinstance(reward, Mapping | list | tuple):
        reward = reward.item()  # a scalar of numpy or torch
    if reward is None or (isinstance(reward, Real) and math.isnan(reward)):
        return Grade(verdict=Verdict.UNKNOWN, reason="no_reward", layer="function")
    if not isinstance(reward, Real):
        return make_wrong_type_grade(reward, ALLOWED)
    return Grade(
        verdict=Verdict.RIGHT if float(reward) >= right_from else Verdict.WRONG,
        reason=f"reward:{float(reward):.6g}",
        layer="function",
    )


def _bind_trl_reward(
    function: Callable[..., Any], names: set[str], chat: bool, item: GradeItem
) -> ScoringCall:
    prompt: Any = item.problem.text
    completion: Any = item.completion
    if chat:
        prompt = [{"role": "user", "content": prompt}]
        completion = [{"role": "assistant", "content": completion}]
    columns = {name: [value] for name, value in _select_columns(item, names).items()}
    keyword_arguments = {**columns, "prompts": [prompt], "completions": [completion]}
    parameters = inspect.signature(function).parameters.values()
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    return partial(
        function, **{k: v for k, v in keyword_arguments.items() if takes_all or k in names}
    )


def _bind_verl_reward(
    function: Callable[..., Any], names: set[str], item: GradeItem
) -> ScoringCall:
    columns = _select_columns(item, names)
    keyword_arguments = {
        "data_source": columns.get("data_source", ""),
        "solution_str": item.completion,
        "ground_truth": item.problem.gold,
        "extra_info": columns.get("extra_info", columns),
    }
    return partial(
        function, **{name: value for name, value in keyword_arguments.items() if name in names}
    )


def _bind_reasoning_gym_score(function: Callable[..., Any], item: GradeItem) -> ScoringCall:
    """Return the call that scores the answer of a completion.

    The answer is the text in the last `<answer>` tag, for which reasoning-gym's prompt asks, or the
    whole text if there is no such tag.
    """
    text = item.completion
    if (end := text.rfind(_CLOSE)) >= 0 and (start := text.rfind(_OPEN, 0, end)) >= 0:
        text = text[start + len(_OPEN) : end].strip()
    return partial(
        function,
        answer=text,
        entry={
            "question": item.problem.text,
            "answer": item.problem.gold,
            "metadata": _select_columns(item, set()).get("metadata", {}),
        },
    )


def _select_columns(item: GradeItem, names: set[str]) -> dict[str, Any]:
    """Return the columns of the problem's row by name, and the gold.

    The gold is stored under each of the function's parameter names that is in `GOLD_NAMES`.

    Args:
        item: the completion with its problem.
        names: names of the function's parameters.
    """
    columns: dict[str, Any] = {name: item.problem.gold for name in GOLD_NAMES if name in names}
    for name, text in item.problem.meta.items():
        columns[name] = _parse_if_json(text) if text.startswith("{") else text
    return columns


def _parse_if_json(text: str) -> Any:
    """Return the value of a JSON text, or a text that is not JSON unchanged."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
