"""Priors of the hidden Markov chains along solutions.

The state of a prefix with r steps to go is a pair: sound (without an error) or not, and a value on
a grid. The value is the probability that a rollout from the prefix ends right. Priors are the
probabilities of the transitions between states along a solution, of its outcome, and of other
samples taking the same step. They are fitted to the evidence of finished problems (rollouts,
outcomes, shared steps), without true labels (`mclabel.labeling.estimators.posterior.fit`). Every
answer class (kind of gold answer) has priors of its own, because wrong reasoning often reaches a
yes/no answer by luck, and seldom a free-form one. A run with one completer begins with
`make_starting_priors`, which were fitted to problems of two kinds, and replaces them by its own
priors as its evidence grows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mclabel.core.records import AUTHOR
from mclabel.core.settings import Count, read_record
from mclabel.labeling.estimators.paths import get_guess_probability
from mclabel.labeling.estimators.posterior.arithmetic import exp, log

Floats = NDArray[np.float64]

GRID = np.array(
    [0.0007, 0.004, 0.012, 0.03, 0.06, 0.12, 0.22, 0.35, 0.5, 0.65, 0.8, 0.92, 0.985, 0.999]
)
"""Grid of values: possible probabilities that a rollout from a prefix ends right."""
NUM_TO_GO = 8
"""Largest number of steps to go that has priors of its own. Larger numbers use the same priors as
this number."""
POOLED = "pooled"
"""Name under which the priors fitted to all answer classes together are stored. Classes without
priors of their own use them."""
FORMAT = 1
"""Version of the JSON format of priors."""
TABLE_SIZE = 64
"""Likelihoods of numbers of samples below this are looked up in a table instead of computed."""
LUCK = 0.02
"""Factor by which `ClassPriors.with_rare_luck` lowers the probability of a right outcome after an
error."""
ALIKE = 0.95
"""Probability that all wrong answers that rollouts reach after one error are graded alike, because
they are often the same answer: all as right, by luck, or all as wrong."""
ALIKE_SHARES = (0.05, 0.98)
"""Shares of wrong answers that are graded as right: first for an error after which nearly all are
graded as wrong, then for one after which nearly all are graded as right."""
GUESSES = 2
"""A wrong answer is graded as right with the probability that at least one of this number of
independent guesses is right. Wrong answers are closer to the gold than guesses: on arith .69 of
them are even or odd as the gold is. `ALIKE`, `ALIKE_SHARES` and `GUESSES` were chosen on half of
arith's validation problems, graded modulo 2, 4 and 10 (`tests/benchmarks/starting_priors.py`)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassPriors:
    """Priors of one answer class.

    r is the number of steps to go from the prefix before a transition. Index 0 of r stands for one
    step to go. That step is the last one, to which `leaf` applies, so the matrices at index 0 are
    not used. The two grid axes of a matrix are the value before and the value after the step.
    """

    root: Floats
    """[r, grid]: probability of each value of the problem without steps; r is the number of steps
    of the solution."""
    sound: Floats
    """[r, grid, grid]: joint probability, for a sound prefix, that the next step is right and of
    the value after it. A row of `sound` and the same row of `wrong` sum to 1."""
    wrong: Floats
    """[r, grid, grid]: joint probability, for a sound prefix, that the next step is wrong and of
    the value after it."""
    unsound: Floats
    """[r, grid, grid]: probability, for an unsound prefix, of each value after the next step."""
    leaf: Floats
    """[3, grid, 2]: probability of a wrong outcome and of a right outcome (last axis), by value
    before the last step. For a sound prefix, index 0 of the first axis is the joint probability
    with a right last step and index 1 that with a wrong last step, so these four numbers sum to 1.
    Index 2 is the probability for an unsound prefix."""
    agreement: Floats
    """[3, 2]: the two beta-binomial parameters of the share of other samples that take the same
    step, for three kinds of steps: right, first wrong, and after an error."""

    @cached_property
    def with_rare_luck(self) -> ClassPriors:
        """These priors with the probability of a right outcome after an error times `LUCK`.

        The fit counts a right answer as luck if other samples do not share the solution's steps, so
        priors fitted with agreement overestimate luck.
        """
        leaf = self.leaf.copy()
        leaf[1:, :, 1] *= LUCK
        return replace(self, leaf=leaf)

    def with_guesses(self, guess_chance: float) -> ClassPriors:
        """Return priors under which an answer that would be wrong is right by guessing.

        The value v of a prefix becomes v + (1 - v) * chance. So the larger the chance is, the less
        the outcomes of rollouts tell about a prefix.

        Args:
            guess_chance: probability that a guess is right.
        """
        there = _compute_interpolation_weights(GRID + (1 - GRID) * guess_chance)
        back = _compute_interpolation_weights((GRID - guess_chance) / (1 - guess_chance))
        moved = {
            name: np.einsum("ij,rjk,kl->ril", back, getattr(self, name), there, optimize=False)
            for name in ("sound", "wrong", "unsound")
        }
        leaf = np.einsum("ij,kjo->kio", back, self.leaf, optimize=False)
        lucky = leaf[..., :1] * guess_chance
        return replace(
            self,
            root=np.einsum("rj,jk->rk", self.root, there, optimize=False),
            leaf=np.concatenate([leaf[..., :1] - lucky, leaf[..., 1:] + lucky], axis=2),
            **moved,
        )

    @cached_property
    def transitions_from_sound(self) -> Floats:
        """Transitions from a sound prefix, [r, grid, 2 * grid], for forward messages.

        The last axis holds the values after a right step (`sound`), then those after a wrong step
        (`wrong`).
        """
        return np.concatenate([self.sound, self.wrong], axis=2)

    @cached_property
    def transitions_to_sound(self) -> Floats:
        """`sound` with its two grid axes exchanged, for backward messages."""
        return np.ascontiguousarray(self.sound.transpose(0, 2, 1))

    @cached_property
    def transitions_to_unsound(self) -> Floats:
        """Transitions to an unsound prefix, [r, grid, 2 * grid], for backward messages.

        r is the number of steps to go before the transition. The middle axis is the value after the
        step. The last axis holds the values before it: those of a sound prefix (`wrong`), then
        those of an unsound prefix (`unsound`).
        """
        back = np.concatenate([self.wrong, self.unsound], axis=1).transpose(0, 2, 1)
        return np.ascontiguousarray(back)

    @cached_property
    def agreement_table(self) -> Floats:
        """[4, TABLE_SIZE * TABLE_SIZE]: `compute_agreement_likelihood` of all pairs of counts below
        `TABLE_SIZE`. A pair has the index num_reaching_prefix * TABLE_SIZE + num_taking_same_step.
        """
        others, same = np.divmod(np.arange(TABLE_SIZE * TABLE_SIZE), TABLE_SIZE)
        return compute_agreement_likelihood(np.minimum(same, others), others, self.agreement)


class LuckHypothesis(NamedTuple):
    """A hypothesis about luck, a right answer after an error."""

    probability: float
    """Prior probability of the hypothesis."""
    priors: ClassPriors
    """Priors of chains under the hypothesis."""


@dataclass(frozen=True, kw_only=True)
class Priors:
    """Priors of every answer class for which there was evidence."""

    classes: Mapping[str, ClassPriors]
    num_solutions: int
    """Number of the run's solutions to which the priors were fitted; 0 for the priors that a run
    begins with."""
    values: Mapping[str, ClassPriors] | None = None
    """Priors from which expected values of steps are computed, fitted to evidence that counts every
    outcome once; None if `classes` is used for this as well."""
    agreement: Priors | None = None
    """Priors for evidence that also counts which other samples take the same steps; None if this is
    not counted, or if no priors have been fitted."""
    completers: Mapping[str, Priors] = field(default_factory=dict)
    """Priors of each completer that is not the author of the solutions, by the completer's name.
    The other fields are the author's priors."""

    def for_completer(self, completer: str) -> Priors:
        """Return the priors of one completer; weakly informative priors if none were fitted for it.

        Args:
            completer: name of the completer.
        """
        if completer == AUTHOR:
            return self
        return self.completers.get(completer, make_uninformed_priors())

    def for_class(self, answer_class: str) -> ClassPriors:
        """Return the priors of an answer class, or pooled ones if the class has none."""
        return select_class_priors(self.classes, answer_class)

    def for_values(self, answer_class: str) -> ClassPriors:
        """Return the priors of `answer_class` that are used to compute expected values of steps."""
        return select_class_priors(
            self.classes if self.values is None else self.values, answer_class
        )

    def make_luck_hypotheses(
        self, answer_class: str, *, rare_luck: bool
    ) -> Sequence[LuckHypothesis]:
        """Return the priors of an answer class under each hypothesis about luck, a right answer
        after an error.

        If the chance of a right guess is 0, there is one hypothesis. Otherwise there are three: the
        wrong answers after an error are graded independently of each other, nearly all as wrong, or
        nearly all as right.

        Args:
            answer_class: a result of `mclabel.labeling.estimators.paths.classify_gold_answer`.
            rare_luck: True applies `ClassPriors.with_rare_luck` if the chance of a right guess is
                0.

        Returns:
            The hypotheses, in this order.
        """
        own = self.for_class(answer_class)
        chance = get_guess_probability(answer_class)
        if not chance:
            return [LuckHypothesis(1.0, own.with_rare_luck if rare_luck else own)]
        lucky = 1 - (1 - chance) ** GUESSES
        pooled = self.classes[POOLED]
        all_wrong, all_right = (make_priors_with_guesses(pooled, share) for share in ALIKE_SHARES)
        return [
            LuckHypothesis(1 - ALIKE, own),
            LuckHypothesis(ALIKE * (1 - lucky), all_wrong),
            LuckHypothesis(ALIKE * lucky, all_right),
        ]

    @cached_property
    def id(self) -> str:
        """Hash of the content, which names the file of the priors."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    @cached_property
    def rounded_as_stored(self) -> Priors:
        """These priors rounded as their file stores them, so that labels can be reproduced."""
        return Priors.from_json(self.to_json())

    def to_json(self) -> str:
        """Return the priors as JSON, with numbers rounded to seven significant digits."""
        return json.dumps({"format": FORMAT, **self._make_json_content()})

    def _make_json_content(self) -> dict[str, Any]:
        content: dict[str, Any] = {
            "num_solutions": self.num_solutions,
            "classes": _convert_classes_to_json(self.classes),
        }
        if self.values is not None:
            content["values"] = _convert_classes_to_json(self.values)
        if self.agreement is not None:
            content["agreement"] = self.agreement._make_json_content()
        if self.completers:
            content["completers"] = {
                name: priors._make_json_content()
                for name, priors in sorted(self.completers.items())
            }
        return content

    @classmethod
    def from_json(cls, text: str) -> Priors:
        """Parse the JSON that `to_json` wrote.

        Raises:
            ValueError: the text has another format, or values that priors cannot have.
        """
        raw = read_record(dict[str, Any], json.loads(text))
        if (file_format := raw.pop("format", None)) != FORMAT:
            raise ValueError(f"priors have format {file_format!r}, must be {FORMAT}")
        return cls._from_parsed_json(read_record(_PriorsJson, raw))

    @classmethod
    def _from_parsed_json(cls, parsed: _PriorsJson) -> Priors:
        return cls(
            classes=_parse_classes(parsed.classes),
            num_solutions=parsed.num_solutions,
            values=None if parsed.values is None else _parse_classes(parsed.values),
            agreement=None if parsed.agreement is None else cls._from_parsed_json(parsed.agreement),
            completers={
                name: cls._from_parsed_json(completer_priors)
                for name, completer_priors in parsed.completers.items()
            },
        )


def select_class_priors(classes: Mapping[str, ClassPriors], answer_class: str) -> ClassPriors:
    """Return the priors of an answer class.

    If the class has none, return the pooled priors, adjusted by the probability of a right guess
    that the name of the class states.
    """
    if answer_class in classes:
        return classes[answer_class]
    return make_priors_with_guesses(classes[POOLED], get_guess_probability(answer_class))


@lru_cache(maxsize=64)
def make_priors_with_guesses(priors: ClassPriors, chance: float) -> ClassPriors:
    """Return `priors.with_guesses(chance)` from a cache, or `priors` itself if the chance is 0."""
    return priors.with_guesses(chance) if chance else priors


_NumbersByField = Mapping[str, Mapping[str, list[Any]]]


@dataclass(frozen=True, kw_only=True)
class _PriorsJson:
    """Priors as their file stores them."""

    classes: _NumbersByField
    num_solutions: Count
    values: _NumbersByField | None = None
    agreement: _PriorsJson | None = None
    completers: Mapping[str, _PriorsJson] = field(default_factory=dict)


def _convert_classes_to_json(classes: Mapping[str, ClassPriors]) -> dict[str, Any]:
    return {
        name: {
            f.name: round_as_stored(getattr(class_priors, f.name)).tolist()
            for f in fields(class_priors)
        }
        for name, class_priors in sorted(classes.items())
    }


def _parse_classes(classes: _NumbersByField) -> dict[str, ClassPriors]:
    if POOLED not in classes:
        raise ValueError(
            f"classes: must have an entry {POOLED} (priors of all answer classes together), "
            f"has {', '.join(classes) or 'none'}"
        )
    return {name: _parse_class_priors(name, arrays) for name, arrays in classes.items()}


def _parse_class_priors(name: str, given: Mapping[str, list[Any]]) -> ClassPriors:
    if given.keys() != _SHAPES.keys():
        raise ValueError(f"classes.{name}: must have {', '.join(_SHAPES)}, has {', '.join(given)}")
    arrays = {key: np.array(value) for key, value in given.items()}
    for key, array in arrays.items():
        if array.shape != _SHAPES[key] or array.dtype.kind not in "fi":
            raise ValueError(f"classes.{name}.{key}: must be numbers of shape {_SHAPES[key]}")
        is_chance = key != "agreement"
        if not (
            (array >= 0) & (array <= 1) if is_chance else (array > 0) & np.isfinite(array)
        ).all():
            rule = "in [0, 1]" if is_chance else "above 0 and finite"
            raise ValueError(f"classes.{name}.{key}: each of its numbers must be {rule}")
    return ClassPriors(**arrays)


_SHAPES = {
    "root": (NUM_TO_GO, len(GRID)),
    **dict.fromkeys(("sound", "wrong", "unsound"), (NUM_TO_GO, len(GRID), len(GRID))),
    "leaf": (3, len(GRID), 2),
    "agreement": (3, 2),
}
"""Shape of each array of `ClassPriors`, against which files are checked."""


def round_as_stored(array: Floats) -> Floats:
    """Round an array to seven significant digits, the precision of files."""
    return np.asarray(np.vectorize(lambda x: float(f"{x:.7g}"))(array))


@lru_cache(maxsize=1)
def make_starting_priors() -> Priors:
    """Read the priors that a run with one completer begins with.

    They were fitted to half of each of three sets of solutions whose first errors are known: one of
    the bundled problems `arith`, and two of SmolLM2 on word problems.
    `tests/benchmarks/starting_priors.py` writes the file.
    """
    text = resources.files(__package__).joinpath(STARTING_PRIORS_FILE).read_text(encoding="utf-8")
    return Priors.from_json(text)


STARTING_PRIORS_FILE = "starting_priors.json"
"""Name of the file in this package that holds the starting priors."""


@lru_cache(maxsize=1)
def make_uninformed_priors() -> Priors:
    """Return weakly informative priors, with which runs with several completers begin.

    The fit that produced the starting priors also began with these. Values change little over right
    steps and fall to almost 0 at an error. Agreement between samples has no effect.
    """
    logit = np.log(GRID / (1 - GRID))
    to_go = np.arange(1, NUM_TO_GO + 1)[:, None]
    # If a rollout fails only by an error in one of its r steps, each step is right with probability
    # v ** (1 / r). The upper bound of 0.15 limits the probability of an error where values are
    # near 0: the first step of an unsolvable problem is not more likely to be wrong, since the
    # policy may always fail at a later step. It was chosen on arith's validation problems.
    hazard = np.clip(1 - GRID ** (1 / to_go), 0.01, 0.15)
    kept = GRID ** ((to_go - 1) / to_go)
    sound = _compute_move_probabilities(
        np.log(kept / (1 - np.minimum(kept, 0.9995))), logit, width=1.0
    )
    fall = np.exp(-0.9 * np.arange(len(GRID)))
    wrong = np.broadcast_to(_normalise_rows(fall + 0.004), sound.shape)
    unsound = np.broadcast_to(
        _compute_move_probabilities(logit[None], logit, width=0.8), sound.shape
    )
    failing = np.stack([1 - GRID, GRID], axis=-1)
    last_hazard = 1 - GRID
    leaf = np.stack(
        [
            (1 - last_hazard)[:, None] * np.array([0.01, 0.99]),
            last_hazard[:, None] * np.array([0.98, 0.02]),
            failing,
        ]
    )
    priors = ClassPriors(
        root=np.full((NUM_TO_GO, len(GRID)), 1 / len(GRID)),
        sound=sound * (1 - hazard)[..., None],
        wrong=wrong * hazard[..., None],
        unsound=np.array(unsound),
        leaf=leaf,
        agreement=np.array([[1.0, 1.0]] * 3),
    )
    return Priors(classes={POOLED: priors}, num_solutions=0).rounded_as_stored


def _compute_move_probabilities(centre: Floats, logit: Floats, *, width: float) -> Floats:
    """Return the probabilities [r, grid, grid] of moving to each value near a centre.

    r is the number of steps to go, as in `ClassPriors`, or an axis of length 1 that holds for every
    number. The two grid axes are the value before and the value after the step.

    Args:
        centre: [r, grid], log odds of the most likely value after the step, by value before it.
        logit: [grid], log odds of the grid's values.
        width: standard deviation of the moves, in log odds.
    """
    near = np.exp(-0.5 * ((logit[None, None, :] - centre[..., None]) / width) ** 2)
    return _normalise_rows(_normalise_rows(near) + 0.05 / len(GRID))


def _compute_interpolation_weights(values: Floats) -> Floats:
    """Return interpolation weights [value, grid].

    They express each value as a weighted mean of the two grid values next to it.
    """
    values = np.clip(values, GRID[0], GRID[-1])
    above = np.clip(np.searchsorted(GRID, values), 1, len(GRID) - 1)
    share = (values - GRID[above - 1]) / (GRID[above] - GRID[above - 1])
    weights = np.zeros((len(values), len(GRID)))
    weights[np.arange(len(values)), above] = share
    weights[np.arange(len(values)), above - 1] = 1 - share
    return weights


def _normalise_rows(rows: Floats) -> Floats:
    return np.asarray(rows / rows.sum(-1, keepdims=True))


def compute_agreement_likelihood(
    num_taking_same_step: NDArray[Any], num_reaching_prefix: NDArray[Any], parameters: Floats
) -> Floats:
    """Return the beta-binomial probability that so many of the other samples take the same step.

    The binomial coefficient is left out, since it does not depend on the state.

    Args:
        num_taking_same_step: any shape, number of other samples that took the same step.
        num_reaching_prefix: the same shape, number of other samples that reached the prefix before
            it.
        parameters: [3, 2], as in `ClassPriors.agreement`.

    Returns:
        [4, *shape]: the probability for each kind of step, divided by the largest of the three, and
        last this divisor.
    """
    m, n = num_taking_same_step.astype(np.intp), num_reaching_prefix.astype(np.intp)
    a, b = parameters[:, :1], parameters[:, 1:]
    count = np.arange(int(n.max(initial=0)))

    def compute_log_rising_factorials(x: Floats) -> Floats:
        """Return log(x (x+1) … (x+k-1)) for each k from 0 to the largest count: [3, k]."""
        logs = np.add.accumulate(log(x + count), axis=1)
        return np.concatenate([np.zeros((3, 1)), logs], axis=1)

    likely = (
        compute_log_rising_factorials(a)[:, m]
        + compute_log_rising_factorials(b)[:, n - m]
        - compute_log_rising_factorials(a + b)[:, n]
    )
    best = likely.max(0)
    return np.concatenate([exp(likely - best), exp(best)[None]])
