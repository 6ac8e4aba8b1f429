"""Rates of a run: how often steps go wrong and recover, and what each source shows of it.

They are fitted without truth (`mclabel.labeling.estimators.trace.fit`), one set an answer class,
since yes/no answers are reached by luck and free-form ones are not. Until then wide ones stand in:
what is continued from a sound prefix ends right as often as the problem's level says, and from an
unsound prefix hardly ever, unless a completion goes back on a step.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from mclabel.core.settings import Count, read_record
from mclabel.labeling.estimators.base import Knowledge
from mclabel.labeling.estimators.paths import Completer
from mclabel.labeling.estimators.posterior.priors import POOLED
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
_SHAPES = {
    "level": (NUM_LEVELS,),
    "moves": (NUM_STATES, NUM_STATES),
    "end": (2, 2),
    "commitment": (2, 2),
}
_SHARES = (NUM_LEVELS, 2, NUM_TO_GO, 3)
_STEPS = {what: np.array(shares) for what, shares in SOURCES.items()}
_LEVELS = np.array([0.03, 0.2, 0.5, 0.8, 0.96])
"""Chances that a sound prefix is completed rightly, by level, before anything is fitted."""
LUCK, REPAIR = 0.04, 0.3
"""Chance that an unsound prefix is completed rightly by luck; and by going back, in levels."""
SPREAD = 8.0
STEP_SPREAD = 3.0
ERRS = 0.05
"""Chance that a step goes wrong where nothing was."""
RECOVERS = 0.06
"""Chance that a step repairs what was wrong."""


@dataclass(frozen=True, kw_only=True)
class TraceRates(Knowledge):
    """Rates of every answer class for which there was evidence."""

    classes: Mapping[str, ClassRates]
    num_solutions: int
    """Number of solutions that they were fitted on; 0 for wide ones."""

    def of(self, answer_class: str, completers: Iterable[Completer]) -> ClassRates:
        """The rates of an answer class, pooled ones if it has none; with all these completers."""
        own = self.classes.get(answer_class, self.classes[POOLED])
        new = [completer for completer in completers if completer.name not in own.shares]
        if not new:
            return own
        wide = wide_rates(new).classes[POOLED]
        values = {name: getattr(own, name) for name in _SHAPES}
        return ClassRates(
            **values,
            steps=own.steps,
            step_spread=own.step_spread,
            shares={**own.shares, **wide.shares},
            spread={**own.spread, **wide.spread},
        )

    @cached_property
    def as_written(self) -> TraceRates:
        """These rates as reading them back gives them, so that labels can be made again."""
        return TraceRates.from_json(self.to_json())

    def to_json(self) -> str:
        """Write all numbers at single precision, which is what reading back gives."""
        classes = {
            name: {
                **{key: _listed(getattr(class_rates, key)) for key in _SHAPES},
                "shares": {
                    who: _listed(class_rates.shares[who]) for who in sorted(class_rates.shares)
                },
                "spread": dict(sorted(class_rates.spread.items())),
                "steps": {source: _listed(class_rates.steps[source]) for source in SOURCES},
                "step_spread": {source: class_rates.step_spread[source] for source in SOURCES},
            }
            for name, class_rates in sorted(self.classes.items())
        }
        content = {"num_solutions": self.num_solutions, "classes": classes}
        return json.dumps({"format": FORMAT, **content})

    @classmethod
    def from_json(cls, text: str) -> TraceRates:
        """Read what `to_json` wrote.

        Raises:
            ValueError: it is of another format, or holds what no rates hold.
        """
        raw = read_record(dict[str, Any], json.loads(text))
        if (file_format := raw.pop("format", None)) != FORMAT:
            raise ValueError(f"rates of format {file_format!r}: must be {FORMAT!r}")
        written = read_record(_Written, raw)
        if POOLED not in written.classes:
            raise ValueError(f"classes: must have {POOLED}")
        return cls(
            classes={
                name: _read(name, class_rates) for name, class_rates in written.classes.items()
            },
            num_solutions=written.num_solutions,
        )


@dataclass(frozen=True, kw_only=True)
class _WrittenClass:
    level: list[Any]
    moves: list[Any]
    end: list[Any]
    commitment: list[Any]
    shares: Mapping[str, list[Any]]
    spread: Mapping[str, float]
    steps: Mapping[str, list[Any]]
    step_spread: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class _Written:
    """Rates as a file holds them."""

    classes: Mapping[str, _WrittenClass]
    num_solutions: Count


def _read(name: str, given: _WrittenClass) -> ClassRates:
    arrays = {key: _array(f"{name}.{key}", getattr(given, key), _SHAPES[key]) for key in _SHAPES}
    shares = {who: _array(f"{name}.{who}", number, _SHARES) for who, number in given.shares.items()}
    steps = {
        source: _array(f"{name}.{source}", given.steps.get(source, []), wide.shape)
        for source, wide in _STEPS.items()
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


def _array(place: str, given: list[Any], shape: tuple[int, ...]) -> Floats:
    try:
        array = np.array(given)
    except ValueError as error:
        raise ValueError(f"classes.{place}: must be numbers of shape {shape}") from error
    if array.shape != shape or array.dtype.kind not in "fi":
        raise ValueError(f"classes.{place}: must be numbers of shape {shape}")
    if not ((array >= 0) & (array <= 1)).all():
        raise ValueError(f"classes.{place}: each of its numbers must be in [0, 1]")
    return array.astype(np.float64)


def _listed(array: Floats) -> Any:
    return _rounded(array).tolist()


def _rounded(array: Floats) -> Floats:
    """Round an array as files hold it, so that labels can be reproduced."""
    return np.asarray(np.vectorize(lambda x: float(f"{x:.7g}"))(array))


def wide_rates(completers: Iterable[Completer]) -> TraceRates:
    """The rates before any evidence."""
    shares = {completer.name: _wide_shares() for completer in completers}
    wide = ClassRates(
        level=np.full(NUM_LEVELS, 1 / NUM_LEVELS),
        moves=_wide_moves(),
        end=np.array([[0.02, 0.98], [0.98, 0.02]]),
        commitment=np.array([[0.05, 0.95], [0.95, 0.05]]),
        shares=shares,
        spread=dict.fromkeys(shares, SPREAD),
        steps=_STEPS,
        step_spread=dict.fromkeys(SOURCES, STEP_SPREAD),
    )
    return TraceRates(classes={POOLED: wide}, num_solutions=0)


@lru_cache(maxsize=1)
def _wide_moves() -> Floats:
    """Levels mostly stay; an error leaves any, and more often one that is out of reach."""
    distance = np.abs(np.arange(NUM_LEVELS)[:, None] - np.arange(NUM_LEVELS))
    near = np.array([1.0, 0.1, 0.02, 0.01, 0.01])[distance]
    near /= near.sum(1, keepdims=True)
    fallen = np.tile(np.array([0.4, 0.2, 0.15, 0.15, 0.1]), (NUM_LEVELS, 1))
    moves = np.zeros((NUM_LEVELS, 2, NUM_LEVELS, 2))
    moves[:, SOUND, :, SOUND] = (1 - ERRS) * near
    moves[:, SOUND, :, UNSOUND] = ERRS * fallen
    moves[:, UNSOUND, :, UNSOUND] = (1 - RECOVERS) * near
    moves[:, UNSOUND, :, SOUND] = RECOVERS * near
    return _rounded(moves.reshape(NUM_STATES, NUM_STATES))


@lru_cache(maxsize=1)
def _wide_shares() -> Floats:
    shares = np.zeros(_SHARES)
    reached = np.tile(_LEVELS[:, None], NUM_TO_GO)
    repaired = REPAIR * reached
    shares[:, SOUND, :, 0] = reached * 0.97
    shares[:, SOUND, :, 1] = repaired * 0.05
    shares[:, UNSOUND, :, 0] = LUCK
    shares[:, UNSOUND, :, 1] = repaired
    shares[..., 2] = 1 - shares.sum(-1)
    return _rounded(shares)
