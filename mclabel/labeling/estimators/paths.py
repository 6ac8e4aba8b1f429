"""A problem and its rollouts as an estimator sees them: paths through a set of prefixes.

A prefix is identified by its index in the problem's table; index 0 is the prefix without steps. An
estimator receives neither text nor token ids. It receives which solutions share which prefixes, the
outcomes of completions, and their numbers of tokens. The author is the model that wrote the
solutions; completers are the models that sample rollouts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mclabel.answers.reading.normalize import normalize, remove_spaces
from mclabel.answers.values.literals import read_literal
from mclabel.core.records import AUTHOR, Counts, Outcome, Problem
from mclabel.data.options import find_option_letters

ROOT = 0
"""Index of the prefix without steps."""
DEFAULT_NUM_OPTIONS = 4
"""Number of options assumed for a problem that lists no options although its gold answer is a
letter."""
_BOOLEAN = {"yes", "no", "true", "false"}
_CHOICE = re.compile(r"\(?[A-Ja-j]\)?")


@dataclass(frozen=True, kw_only=True)
class SolutionPath:
    """The facts about a solution that an estimator receives."""

    prefixes: tuple[int, ...]
    """`prefixes[t]` is the index of the prefix that ends with step t, counted from 0. The last step
    has no entry, since nothing is left to roll out after it and its label is the outcome.
    Solutions that begin with the same steps share prefix indices."""
    outcome: Outcome
    """Verdict on the solution's final answer, or the reason why there is none."""
    sampled: bool = True
    """True if the policy sampled the solution under the rollouts' sampling parameters and the
    solution was not selected by its outcome. Then its outcome counts as a rollout of each of its
    prefixes, at no cost."""
    step_tokens: tuple[int, ...] = ()
    """Number of tokens of each step; empty if the numbers are unknown."""
    step_keys: tuple[str, ...] = ()
    """For each step, a key of its content: steps with the same content have equal keys
    (`mclabel.labeling.prefixes.make_step_key`)."""
    step_factors: tuple[float, ...] = ()
    """For each step, a factor of the prior probability that it is the first wrong one (see
    `mclabel.labeling.prefixes.compute_step_factors`); empty if the steps were not compared."""
    commitments: tuple[Outcome | None, ...] = ()
    """For each step, the verdict on the answer that the step states; None for a step that states no
    answer. Empty if the steps were not searched for answers."""

    @property
    def num_steps(self) -> int:
        """Number of steps, including the last one."""
        return len(self.prefixes) + 1


@dataclass(frozen=True, kw_only=True)
class Completer:
    """The facts about a completer (a model that samples rollouts) that an estimator receives."""

    name: str = AUTHOR
    cost: float = 1.0
    """Cost of one token of this completer, relative to a token of the cheapest completer."""

    @property
    def is_author(self) -> bool:
        """Return whether the completer is the model that wrote the solutions."""
        return self.name == AUTHOR


@dataclass(frozen=True, kw_only=True)
class ProblemPaths:
    """The facts about a problem that an estimator receives."""

    paths: Sequence[SolutionPath]
    """One path per solution, in order."""
    answer_class: str = ""
    """Kind of the problem's gold answer, as `classify_gold_answer` returns it. Wrong reasoning
    reaches some kinds of answers by luck more often than others."""
    completers: Sequence[Completer] = (Completer(),)
    """Models that can sample rollouts, in the order of their indices."""


class Probe(NamedTuple):
    """One rollout requested by an estimator that serves several completers."""

    prefix: int
    """Index of the prefix."""
    completer: int = 0
    """Index of the completer in `ProblemPaths.completers`."""


@dataclass(frozen=True, kw_only=True)
class RecordedRollout:
    """The facts about one rollout that an estimator receives."""

    prefix: int
    """Index of the prefix from which the rollout was sampled."""
    outcome: Outcome
    """Verdict on the rollout's final answer, or the reason why there is none."""
    num_tokens: int = 0
    """Number of sampled tokens."""
    path: tuple[int, ...] = ()
    """Indices of the prefixes that the rollout reached after `prefix`, in order, without its last
    step. With `Estimator.follow` = `known` only prefixes that were already in the problem's table
    are listed, with `all` every prefix is, and with `nothing` the tuple is empty."""
    step_keys: tuple[str, ...] = ()
    """For each step of the rollout, a key of its content, as in `SolutionPath.step_keys`."""
    step_tokens: tuple[int, ...] = ()
    """Number of tokens of each step of the rollout, if `Estimator.follow` is `all`."""
    completer: int = 0
    """Index of the completer that sampled the rollout."""
    repairs: bool = False
    """True if the rollout corrects a step of its prefix. A right answer of such a rollout does not
    indicate that the prefix is right."""
    is_requested: bool = True
    """True if the estimator requested the rollout, False if it is a recorded rollout that the
    estimator did not request."""


def find_strongest_completer_index(completers: Sequence[Completer]) -> int:
    """Return the index of the strongest completer, which is taken to be the most costly one.

    Among equally costly completers, the first that is not the author is returned.
    """

    def cost_key(index: int) -> tuple[float, bool]:
        completer = completers[index]
        return completer.cost, not completer.is_author

    return max(range(len(completers)), key=cost_key)


def list_distinct_prefixes(paths: Sequence[SolutionPath]) -> list[int]:
    """Return the indices of the solutions' prefixes in rising order, without `ROOT`."""
    return sorted({prefix for path in paths for prefix in path.prefixes})


UNKNOWN_STEP_TOKENS = 20
"""Number of tokens assumed for a step whose length is unknown."""


def compute_mean_solution_tokens(paths: Sequence[SolutionPath]) -> float:
    """Return the mean number of tokens of the solutions; at least 1."""
    lengths = [
        sum(path.step_tokens) if path.step_tokens else UNKNOWN_STEP_TOKENS * path.num_steps
        for path in paths
    ]
    return max(1.0, sum(lengths) / max(1, len(lengths)))


def count_sampled_outcomes(paths: Sequence[SolutionPath]) -> Counts:
    """Count the outcomes of the solutions that count as rollouts from the problem without steps."""
    counts = Counts()
    for path in paths:
        if path.sampled:
            counts = counts.plus(path.outcome)
    return counts


def classify_gold_answer(problem: Problem) -> str:
    """Return the kind of a problem's gold answer.

    The probability that wrong reasoning reaches the answer by luck depends on this kind.

    Returns:
        `boolean`, `choice` (one letter), `digit` (a whole number of one digit), `number` or `text`.
        If the probability that a guess is right is known, it is appended, as in `choice 0.25`.
    """
    kind = _classify_answer(problem.answer)
    chance = problem.chance
    if chance is None:
        num_options = len(find_option_letters(problem.text)) or DEFAULT_NUM_OPTIONS
        chance = {"boolean": 1 / 2, "choice": 1 / num_options}.get(kind, 0.0)
    return f"{kind} {chance:.3g}" if chance else kind


def get_guess_probability(answer_class: str) -> float:
    """Return the probability that a guessed answer is right; 0 if it is unknown.

    Args:
        answer_class: class of the gold answer, as the function `classify_gold_answer` returns it.
    """
    _, _, chance = answer_class.partition(" ")
    return float(chance or 0)


def _classify_answer(answer: str) -> str:
    plain = normalize(answer)
    if plain.casefold() in _BOOLEAN:
        return "boolean"
    if _CHOICE.fullmatch(plain):
        return "choice"
    literal = read_literal(remove_spaces(plain))
    if literal is None:
        return "text"
    number = literal.value
    return "digit" if number.denominator == 1 and abs(number) < 10 else "number"
