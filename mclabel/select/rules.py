"""Rules that rank the solutions of a pool by how much their labels are worth.

`CONVINCING` is the selection of "Let's Verify Step by Step" (arXiv 2305.20050, section 4.2): of
what it takes, 80% are wrong answers with the highest scores, the rest are the best of all others.
The paper ranks 1,000 samples of each problem alone; here one budget is shared, and problems take
turns (`choose`). `UNCERTAIN` ranks by what the PRM does not know, as ActPRM (arXiv 2504.10559) does
with thresholds; ours needs no ensemble, and none. A function of one's own ranks by what it returns.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import FiniteFloat

from mclabel.core.boundary import Boundary
from mclabel.core.components import find_target
from mclabel.core.errors import ConfigError, DataError
from mclabel.core.records import Outcome

KIND = "selections"
GIVEN = ("problem", "solution", "steps", "scores", "score", "outcome")
"""Names of parameters that a function of one's own may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredSolution:
    """A solution of the pool with its scores."""

    place: str
    """Names it in messages."""
    problem: str
    steps: tuple[str, ...]
    scores: tuple[float, ...]
    """One a step, in [0, 1]."""
    score: float
    """Score of the whole solution."""
    outcome: Outcome | None
    """How it ended; None if the pool does not say."""
    concentrations: tuple[float, ...] = ()
    """One a step: how sure the PRM is of each score, higher is surer; empty if it cannot tell."""

    @property
    def solution(self) -> str:
        """Its text."""
        return "".join(self.steps)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How solutions are ranked."""

    key: Callable[[ScoredSolution], float] | None
    """A number for a solution, higher is chosen first. None chooses at random, without scores."""
    wrong_share: float | None = None
    """Share of what the rule takes that are wrong or ungraded answers, if there are enough."""


def entropy_of_first_error(scores: tuple[float, ...]) -> float:
    """Entropy, in nats, of where the first error is, or that there is none.

    The scores are taken for the chances that a step is right given that all before it are.
    """
    sound, total = 1.0, 0.0
    for score in scores:
        total -= _x_log_x(sound * (1 - score))
        sound *= score
    return total - _x_log_x(sound)


def _x_log_x(x: float) -> float:
    return x * math.log(x) if x > 0 else 0.0


def _uncertainty(row: ScoredSolution) -> float:
    if row.concentrations:
        return -min(row.concentrations)
    return entropy_of_first_error(row.scores)


UNIFORM = Rule(key=None)
CONVINCING = Rule(key=lambda row: row.score, wrong_share=0.8)
UNCERTAIN = Rule(key=_uncertainty)


def find_rule(name: str) -> Rule:
    """The rule of a name, or one that calls the function `module:function`.

    Raises:
        ConfigError: there is none, or the function takes what no solution has.
    """
    target = find_target(KIND, name)
    if isinstance(target, Rule):
        return target
    if not callable(target) or isinstance(target, type):
        raise ConfigError(f"rule={name}: must be a function. Give module:function")
    return Rule(key=_of_function(name, target))


def _of_function(name: str, function: Callable[..., Any]) -> Callable[[ScoredSolution], float]:
    parameters = inspect.signature(function).parameters.values()
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    named = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    unknown = [p.name for p in named if p.name not in GIVEN and p.default is p.empty]
    if unknown or any(p.kind is p.POSITIONAL_ONLY for p in named):
        raise ConfigError(
            f"rule={name}: its parameter {', '.join(unknown) or 'before /'} gets no value. Use "
            f"only parameters among {', '.join(GIVEN)}"
        )
    names = GIVEN if takes_all else [p.name for p in named if p.name in GIVEN]
    around = Boundary(KIND, name)

    def key(row: ScoredSolution) -> float:
        given = {one: getattr(row, one) for one in names}
        method = f"for {row.place}, the function"
        found: float = around.call(method, function, must=FiniteFloat, **given)
        return float(found)

    return key


def scored_solution(
    place: str,
    problem: str,
    steps: tuple[str, ...],
    row: Mapping[str, Any],
    outcome: Outcome | None,
    how: Callable[[tuple[float, ...]], float],
) -> ScoredSolution:
    """A solution with the scores in its row.

    Args:
        place: names it in messages.
        problem: its text.
        steps: texts of its steps.
        row: with `scores`, and `concentration` if the PRM has them.
        outcome: how it ended; None if the pool does not say.
        how: makes one score of those of the steps.

    Raises:
        DataError: the row has no scores, or such as are none.
    """
    scores = _numbers(place, row, "scores")
    if not scores or not all(0 <= score <= 1 for score in scores):
        raise DataError(
            f"{place}: scores={row.get('scores')!r}: must be numbers from 0 to 1, one a step. Give "
            "what `mclabel score` has written"
        )
    return ScoredSolution(
        place=place,
        problem=problem,
        steps=steps,
        scores=scores,
        score=how(scores),
        outcome=outcome,
        concentrations=_numbers(place, row, "concentration") if row.get("concentration") else (),
    )


def _numbers(place: str, row: Mapping[str, Any], name: str) -> tuple[float, ...]:
    found = row.get(name)
    numbers: list[Any] = list(found) if isinstance(found, list | tuple) else [None]
    if not all(type(one) in (int, float) and math.isfinite(one) for one in numbers):
        raise DataError(
            f"{place}: {name}={found!r}: must be a list of finite numbers, one a step. Give what "
            "`mclabel score` has written"
        )
    return tuple(map(float, numbers))
