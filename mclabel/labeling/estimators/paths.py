"""A problem and its rollouts as an estimator sees them: paths through a set of prefixes.

A prefix has an index; the bare problem is prefix 0. An estimator sees no text and no token, only
which solutions share which prefixes, how completions ended, and what they cost.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mclabel.answers.reading.normalize import normalize, squeeze
from mclabel.answers.values.literals import read_literal
from mclabel.core.records import AUTHOR, Counts, Outcome, Problem
from mclabel.data.options import listed_options

ROOT = 0
"""Index of the bare problem among the prefixes."""
USUAL_OPTIONS = 4
"""Number of options of a problem that lists none although its gold is a letter."""
_BOOLEAN = {"yes", "no", "true", "false"}
_CHOICE = re.compile(r"\(?[A-Ja-j]\)?")


@dataclass(frozen=True, kw_only=True)
class SolutionPath:
    """A solution as an estimator sees it."""

    prefixes: tuple[int, ...]
    """`prefixes[t]` is the index of the prefix that ends with step t, for every step but the last:
    after the last step nothing is left to roll out, and its label is the outcome. Solutions that
    begin alike share prefix indices."""
    outcome: Outcome
    """The way that the solution itself ended."""
    sampled: bool = True
    """True if the policy sampled the solution under the rollouts' sampling parameters, and it was
    not chosen by its outcome: then the outcome is a free rollout of each of its prefixes."""
    step_tokens: tuple[int, ...] = ()
    """Number of tokens of each step; empty where they are unknown."""
    step_keys: tuple[str, ...] = ()
    """Content of each step as a key: steps with the same content have equal keys
    (`mclabel.labeling.prefixes`)."""
    commitments: tuple[Outcome | None, ...] = ()
    """For each step, how the answer is graded that it commits to, None where it states none; empty
    where nobody looked."""

    @property
    def num_steps(self) -> int:
        """Number of steps, the last one included."""
        return len(self.prefixes) + 1


@dataclass(frozen=True, kw_only=True)
class Completer:
    """A model that rolls out, as an estimator sees it."""

    name: str = AUTHOR
    cost: float = 1.0
    """Cost of one of its tokens, relative to the cheapest completer's."""

    @property
    def is_author(self) -> bool:
        """Return whether it is the model that wrote the solutions."""
        return self.name == AUTHOR


@dataclass(frozen=True, kw_only=True)
class ProblemPaths:
    """A problem as an estimator sees it."""

    paths: Sequence[SolutionPath]
    """One path per solution, in order."""
    answer_class: str = ""
    """Kind of the problem's gold answer, by which luck differs: a result of `answer_class`."""
    completers: Sequence[Completer] = (Completer(),)
    """The models that can roll out, by index."""


class Probe(NamedTuple):
    """One rollout requested by an estimator that serves several completers."""

    prefix: int
    """Index of the prefix."""
    completer: int = 0
    """Index of the completer in `ProblemPaths.completers`."""


@dataclass(frozen=True, kw_only=True)
class RecordedRollout:
    """One rollout's outcome, as an estimator receives it."""

    prefix: int
    """Index of the prefix it was rolled out from."""
    outcome: Outcome
    """The way that the completion ended."""
    num_tokens: int = 0
    """Number of sampled tokens."""
    path: tuple[int, ...] = ()
    """Prefixes that the rollout went through after its own, in order. They are those of the table
    where the estimator follows `known` ones, and every step's but the last where it follows
    `all`."""
    step_keys: tuple[str, ...] = ()
    """Content of each of its steps, as in `SolutionPath.step_keys`."""
    step_tokens: tuple[int, ...] = ()
    """Number of tokens of each of its steps, where the estimator follows `all`."""
    completer: int = 0
    """Index of the completer that sampled it."""
    repairs: bool = False
    """True if it goes back on a step of the prefix that it continues, so that where it ends right,
    it shows nothing of the prefix."""
    asked: bool = True
    """True if the estimator asked for it; else it was on record before."""


def strongest(completers: Sequence[Completer]) -> int:
    """Index of the strongest completer, as far as costs tell: the first of the most costly.

    The author is not it if another costs as much.
    """

    def order(number: int) -> tuple[float, bool]:
        completer = completers[number]
        return completer.cost, not completer.is_author

    return max(range(len(completers)), key=order)


def distinct_prefixes(paths: Sequence[SolutionPath]) -> list[int]:
    """List the prefixes of these solutions, rising; the bare problem is not among them."""
    return sorted({prefix for path in paths for prefix in path.prefixes})


UNKNOWN_STEP_TOKENS = 20
"""Number of tokens assumed for a step whose length is unknown."""


def mean_tokens(paths: Sequence[SolutionPath]) -> float:
    """Return the mean number of tokens of the solutions; 1 at least."""
    lengths = [
        sum(path.step_tokens) if path.step_tokens else UNKNOWN_STEP_TOKENS * path.num_steps
        for path in paths
    ]
    return max(1.0, sum(lengths) / max(1, len(lengths)))


def sibling_counts(paths: Sequence[SolutionPath]) -> Counts:
    """Count the outcomes of the solutions that are free rollouts of the bare problem."""
    counts = Counts()
    for path in paths:
        if path.sampled:
            counts = counts.plus(path.outcome)
    return counts


def answer_class(problem: Problem) -> str:
    """The kind of a problem's gold answer, by which it depends how often luck finds it.

    Returns:
        `boolean`, `choice` (one letter), `digit` (a whole number of one digit), `number` or
        `text`; behind it the chance that a guess is right, where there is one: `choice 0.25`.
    """
    kind = _kind(problem.answer)
    chance = problem.chance
    if chance is None:
        num_options = len(listed_options(problem.text)) or USUAL_OPTIONS
        chance = {"boolean": 1 / 2, "choice": 1 / num_options}.get(kind, 0.0)
    return f"{kind} {chance:.3g}" if chance else kind


def chance_of(answer_class: str) -> float:
    """The chance that a guess is right, by a result of `answer_class`."""
    _, _, chance = answer_class.partition(" ")
    return float(chance or 0)


def _kind(answer: str) -> str:
    plain = normalize(answer)
    if plain.casefold() in _BOOLEAN:
        return "boolean"
    if _CHOICE.fullmatch(plain):
        return "choice"
    literal = read_literal(squeeze(plain))
    if literal is None:
        return "text"
    number = literal.value
    return "digit" if number.denominator == 1 and abs(number) < 10 else "number"
