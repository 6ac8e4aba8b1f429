"""Rates of a run: the probabilities that steps go wrong and recover, and those of the evidence.

Rates are fitted without true labels (`mclabel.labeling.estimators.trace.fit`). Every answer class
(kind of gold answer) has rates of its own, because wrong reasoning often reaches a yes/no answer by
luck, and seldom a free-form one. A completer is a model that samples completions; a prefix is sound
if it contains no unrepaired error. Before the first fit, default rates are used, the wide rates.
Under these, the level of a problem determines how often a completion from a sound prefix ends
right. A completion from an unsound prefix hardly ever ends right, unless it corrects a step of the
prefix.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from mclabel.core.settings import Count, read_record
from mclabel.labeling.estimators.base import Knowledge
from mclabel.labeling.estimators.paths import Completer
from mclabel.labeling.estimators.posterior.priors import POOLED, round_as_stored
from mclabel.labeling.estimators.trace.agreement import SOURCES
from mclabel.labeling.estimators.trace.chain import (
    NUM_LEVELS,
    NUM_STATES,
    NUM_TO_GO,
    SOUND,
    UNSOUND,
    ClassRates,
    Floats,
)

FORMAT = "trace-1"
"""Version of the JSON format of rates."""
_SHAPES = {
    "level": (NUM_LEVELS,),
    "moves": (NUM_STATES, NUM_STATES),
    "end": (2, 2),
    "commitment": (2, 2),
}
_SHARES_SHAPE = (NUM_LEVELS, 2, NUM_TO_GO, 3)
_DEFAULT_STEP_SHARES = {source: np.array(shares) for source, shares in SOURCES.items()}
_LEVELS = np.array([0.03, 0.2, 0.5, 0.8, 0.96])
"""Default rates: probability that a completion from a sound prefix ends right, for each level."""
LUCK, REPAIR = 0.04, 0.3
"""Default rates of right completions from an unsound prefix. `LUCK` is the probability of a right
answer by luck. `REPAIR` times the level's value in `_LEVELS` is the probability of a right answer
after correcting a step."""
SPREAD = 8.0
"""Default value of `ClassRates.spread`, used where none was fitted."""
STEP_SPREAD = 3.0
"""Default value of `ClassRates.step_spread`, used where none was fitted."""
ERROR_RATE = 0.05
"""Default rate: probability that a step after a sound prefix is wrong."""
RECOVERY_RATE = 0.06
"""Default rate: probability that a step after an unsound prefix repairs the error."""


@dataclass(frozen=True, kw_only=True)
class TraceRates(Knowledge):
    """Rates of every answer class (kind of gold answer) for which there was evidence."""

    classes: Mapping[str, ClassRates]
    num_solutions: int
    """Number of solutions to which the rates were fitted; 0 for the default (wide) rates."""

    def for_class(self, answer_class: str, completers: Iterable[Completer]) -> ClassRates:
        """Return the rates of an answer class, or those of all classes together if it has none.

        Args:
            answer_class: result of the function `classify_gold_answer`.
            completers: completers that the rates must cover; a completer without fitted rates gets
                the default (wide) ones.
        """
        own = self.classes.get(answer_class, self.classes[POOLED])
        new = [completer for completer in completers if completer.name not in own.shares]
        if not new:
            return own
        wide = make_uninformed_rates(new).classes[POOLED]
        values = {name: getattr(own, name) for name in _SHAPES}
        return ClassRates(
            **values,
            steps=own.steps,
            step_spread=own.step_spread,
            shares={**own.shares, **wide.shares},
            spread={**own.spread, **wide.spread},
        )

    def to_json(self) -> str:
        """Return the rates as JSON, with array elements rounded to seven significant digits."""
        classes = {
            name: {
                **{key: round_as_stored(getattr(class_rates, key)).tolist() for key in _SHAPES},
                "shares": {
                    completer: round_as_stored(class_rates.shares[completer]).tolist()
                    for completer in sorted(class_rates.shares)
                },
                "spread": dict(sorted(class_rates.spread.items())),
                "steps": {
                    source: round_as_stored(class_rates.steps[source]).tolist()
                    for source in SOURCES
                },
                "step_spread": {source: class_rates.step_spread[source] for source in SOURCES},
            }
            for name, class_rates in sorted(self.classes.items())
        }
        content = {"num_solutions": self.num_solutions, "classes": classes}
        return json.dumps({"format": FORMAT, **content})

    @classmethod
    def from_json(cls, text: str) -> TraceRates:
        """Parse the JSON that `to_json` wrote.

        Raises:
            ValueError: the text has another format, or values that rates cannot have.
        """
        raw = read_record(dict[str, Any], json.loads(text))
        if (file_format := raw.pop("format", None)) != FORMAT:
            raise ValueError(f"rates have format {file_format!r}, must be {FORMAT!r}")
        written = read_record(_TraceRatesJson, raw)
        if POOLED not in written.classes:
            has = ", ".join(written.classes) or "none"
            raise ValueError(
                f"classes: must have an entry {POOLED} (rates of all answer classes together), "
                f"has {has}"
            )
        return cls(
            classes={
                name: _parse_class_rates(name, class_rates)
                for name, class_rates in written.classes.items()
            },
            num_solutions=written.num_solutions,
        )


@dataclass(frozen=True, kw_only=True)
class _ClassRatesJson:
    level: list[Any]
    moves: list[Any]
    end: list[Any]
    commitment: list[Any]
    shares: Mapping[str, list[Any]]
    spread: Mapping[str, float]
    steps: Mapping[str, list[Any]]
    step_spread: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class _TraceRatesJson:
    """Rates as their file stores them."""

    classes: Mapping[str, _ClassRatesJson]
    num_solutions: Count


def _parse_class_rates(name: str, given: _ClassRatesJson) -> ClassRates:
    arrays = {
        key: _parse_probabilities(f"{name}.{key}", getattr(given, key), _SHAPES[key])
        for key in _SHAPES
    }
    shares = {
        completer: _parse_probabilities(f"{name}.{completer}", number, _SHARES_SHAPE)
        for completer, number in given.shares.items()
    }
    steps = {
        source: _parse_probabilities(f"{name}.{source}", given.steps.get(source, []), wide.shape)
        for source, wide in _DEFAULT_STEP_SHARES.items()
    }
    for key, of in (("spread", shares), ("step_spread", steps)):
        spread = getattr(given, key)
        if spread.keys() != of.keys() or not all(0 < number < np.inf for number in spread.values()):
            raise ValueError(f"classes.{name}.{key}: must have a number above 0 for each source")
    return ClassRates(
        **arrays,
        shares=shares,
        spread=dict(given.spread),
        steps=steps,
        step_spread=dict(given.step_spread),
    )


def _parse_probabilities(key: str, given: list[Any], shape: tuple[int, ...]) -> Floats:
    try:
        array = np.array(given)
    except ValueError as error:
        raise ValueError(f"classes.{key}: must be numbers of shape {shape}") from error
    if array.shape != shape or array.dtype.kind not in "fi":
        raise ValueError(f"classes.{key}: must be numbers of shape {shape}")
    if not ((array >= 0) & (array <= 1)).all():
        raise ValueError(f"classes.{key}: each of its numbers must be in [0, 1]")
    return array.astype(np.float64)


def make_uninformed_rates(completers: Iterable[Completer]) -> TraceRates:
    """Return the rates with which a run begins, before any evidence."""
    shares = {completer.name: _make_prior_completion_shares() for completer in completers}
    wide = ClassRates(
        level=np.full(NUM_LEVELS, 1 / NUM_LEVELS),
        moves=_make_prior_move_probabilities(),
        end=np.array([[0.02, 0.98], [0.98, 0.02]]),
        commitment=np.array([[0.05, 0.95], [0.95, 0.05]]),
        shares=shares,
        spread=dict.fromkeys(shares, SPREAD),
        steps=_DEFAULT_STEP_SHARES,
        step_spread=dict.fromkeys(SOURCES, STEP_SPREAD),
    )
    return TraceRates(classes={POOLED: wide}, num_solutions=0)


@lru_cache(maxsize=1)
def _make_prior_move_probabilities() -> Floats:
    """Return the probabilities of moves before any fit, `ClassRates.moves`.

    The level mostly stays the same over a step. After an error any level can follow, most often the
    lowest.
    """
    distance = np.abs(np.arange(NUM_LEVELS)[:, None] - np.arange(NUM_LEVELS))
    near = np.array([1.0, 0.1, 0.02, 0.01, 0.01])[distance]
    near /= near.sum(1, keepdims=True)
    fallen = np.tile(np.array([0.4, 0.2, 0.15, 0.15, 0.1]), (NUM_LEVELS, 1))
    moves = np.zeros((NUM_LEVELS, 2, NUM_LEVELS, 2))
    moves[:, SOUND, :, SOUND] = (1 - ERROR_RATE) * near
    moves[:, SOUND, :, UNSOUND] = ERROR_RATE * fallen
    moves[:, UNSOUND, :, UNSOUND] = (1 - RECOVERY_RATE) * near
    moves[:, UNSOUND, :, SOUND] = RECOVERY_RATE * near
    return round_as_stored(moves.reshape(NUM_STATES, NUM_STATES))


@lru_cache(maxsize=1)
def _make_prior_completion_shares() -> Floats:
    shares = np.zeros(_SHARES_SHAPE)
    reached = np.tile(_LEVELS[:, None], NUM_TO_GO)
    repaired = REPAIR * reached
    shares[:, SOUND, :, 0] = reached * 0.97
    shares[:, SOUND, :, 1] = repaired * 0.05
    shares[:, UNSOUND, :, 0] = LUCK
    shares[:, UNSOUND, :, 1] = repaired
    shares[..., 2] = 1 - shares.sum(-1)
    return round_as_stored(shares)
