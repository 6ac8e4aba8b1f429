"""Priors: what the posterior believes before it sees a problem's rollouts.

A prefix with r steps to go is in a state: sound or not, and a value on a grid. Priors describe how
states follow each other along a solution, how it ends, and how often other samples take the same
step. They are fitted without truth on the evidence of finished problems
(`mclabel.labeling.estimators.posterior.fit`), one set an answer class, since yes/no answers are
reached by luck and free-form ones are not. A run with one completer begins with `starting_priors`,
which were fitted to problems of two kinds, and replaces them by its own as its evidence grows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, lru_cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mclabel.core.records import AUTHOR, Chance
from mclabel.core.settings import Count, read_record
from mclabel.labeling.estimators.paths import chance_of
from mclabel.labeling.estimators.posterior.arithmetic import exp, log

Floats = NDArray[np.float64]

GRID = np.array(
    [0.0007, 0.004, 0.012, 0.03, 0.06, 0.12, 0.22, 0.35, 0.5, 0.65, 0.8, 0.92, 0.985, 0.999]
)
NUM_TO_GO = 8
"""Largest number of steps to go with priors of its own; more count as this many."""
POOLED = "pooled"
"""The pooled class, used for a class without priors of its own."""
FORMAT = 1
TABLE = 64
"""Likelihoods of counts below it are looked up."""
LUCK = 0.02


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassPriors:
    """Priors of one answer class; r is the number of steps to go from the earlier prefix.

    Index 0 of r stands for one step to go, whose step is the last: its matrices are not used,
    `leaf` is.
    """

    root: Floats
    """[r, grid]: value of the bare problem, by the length of the solution."""
    sound: Floats
    """[r, grid, grid]: a sound prefix stays sound and its value moves. With `wrong` sums to 1."""
    wrong: Floats
    """[r, grid, grid]: a sound prefix is followed by a wrong step."""
    unsound: Floats
    """[r, grid, grid]: how values move after an error."""
    leaf: Floats
    """[3, grid, 2]: by value before the last step, the chance that it ends wrong or right: and
    sound; with the last step wrong; from an unsound prefix. The first two sum to 1."""
    agreement: Floats
    """[3, 2]: beta-binomial parameters of the share of other samples that take the same step,
    when it is right, when it is the first wrong one, and after an error."""

    @cached_property
    def with_rare_luck(self) -> ClassPriors:
        """These priors, but a right answer after an error is `LUCK` times as likely.

        Where agreement is used the fit mistakes right answers that others do not agree with for
        lucky ones.
        """
        leaf = self.leaf.copy()
        leaf[1:, :, 1] *= LUCK
        return replace(self, leaf=leaf)

    def with_guesses(self, chance: float) -> ClassPriors:
        """These priors where, besides, whatever would end wrong is right with some chance.

        The value v of a prefix becomes v + (1 - v) * chance, so that rollouts tell the less of a
        prefix the larger the chance is.
        """
        there = _at(GRID + (1 - GRID) * chance)
        back = _at((GRID - chance) / (1 - chance))
        moved = {
            name: np.einsum("ij,rjk,kl->ril", back, getattr(self, name), there, optimize=False)
            for name in ("sound", "wrong", "unsound")
        }
        leaf = np.einsum("ij,kjo->kio", back, self.leaf, optimize=False)
        lucky = leaf[..., :1] * chance
        return replace(
            self,
            root=np.einsum("rj,jk->rk", self.root, there, optimize=False),
            leaf=np.concatenate([leaf[..., :1] - lucky, leaf[..., 1:] + lucky], axis=2),
            **moved,
        )

    @cached_property
    def from_sound(self) -> Floats:
        """[r, grid, 2 * grid]: `sound` beside `wrong`."""
        return np.concatenate([self.sound, self.wrong], axis=2)

    @cached_property
    def to_sound(self) -> Floats:
        """`sound` with the two values in turn, for messages backward."""
        return np.ascontiguousarray(self.sound.transpose(0, 2, 1))

    @cached_property
    def to_unsound(self) -> Floats:
        """[r, grid, 2 * grid]: `wrong` beside `unsound`, the two values in turn."""
        back = np.concatenate([self.wrong, self.unsound], axis=1).transpose(0, 2, 1)
        return np.ascontiguousarray(back)

    @cached_property
    def agreements(self) -> Floats:
        """[4, others * TABLE + same]: `agreement_likelihood` of all small counts."""
        others, same = np.divmod(np.arange(TABLE * TABLE), TABLE)
        return agreement_likelihood(np.minimum(same, others), others, self.agreement)


@dataclass(frozen=True, kw_only=True)
class Rates:
    """The way that a completer's rollouts mislead, as the run shows it without truth.

    Means over the prefixes that end with a step, each weighing the same.
    """

    blindness: Chance
    """Chance of its rollouts from sound prefixes that end wrong."""
    luck: Chance
    """Chance of its rollouts from unsound prefixes that end right."""


@dataclass(frozen=True, kw_only=True)
class Priors:
    """Priors of every answer class for which there was evidence."""

    classes: Mapping[str, ClassPriors]
    num_solutions: int
    """Number of the run's solutions that they were fitted to; 0 for those that it begins with."""
    values: Mapping[str, ClassPriors] | None = None
    """Priors for expected values, where first errors are found on evidence that counts outcomes
    twice; None where they are the same."""
    agreement: Priors | None = None
    """Priors for evidence with the agreement of other samples; None where it is not used, or
    nothing is fitted."""
    completers: Mapping[str, Priors] = field(default_factory=dict)
    """For each name, the priors of each completer that is not the author, whose own the others
    are.
    """
    rates: Mapping[str, Rates] = field(default_factory=dict)
    """For each completer; empty before anything is fitted, and where the author alone rolls out."""

    def by(self, completer: str) -> Priors:
        """The priors of one completer's chains; wide ones of another model that has none so far."""
        if completer == AUTHOR:
            return self
        return self.completers.get(completer, wide_priors())

    def of(self, answer_class: str) -> ClassPriors:
        """The priors of an answer class, or the pooled ones where it has none of its own."""
        return priors_of(self.classes, answer_class)

    def of_values(self, answer_class: str) -> ClassPriors:
        """The priors of an answer class for evidence in which every outcome counts once."""
        return priors_of(self.classes if self.values is None else self.values, answer_class)

    @cached_property
    def id(self) -> str:
        """A hash of the content."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    @cached_property
    def as_written(self) -> Priors:
        """These priors as reading them back gives them, so that labels can be made again."""
        return Priors.from_json(self.to_json())

    def to_json(self) -> str:
        """Write all numbers at single precision, which is what reading back gives."""
        return json.dumps({"format": FORMAT, **self._content()})

    def _content(self) -> dict[str, Any]:
        content: dict[str, Any] = {
            "num_solutions": self.num_solutions,
            "classes": _written(self.classes),
        }
        if self.values is not None:
            content["values"] = _written(self.values)
        if self.agreement is not None:
            content["agreement"] = self.agreement._content()
        if self.completers:
            content["completers"] = {
                name: priors._content() for name, priors in sorted(self.completers.items())
            }
        if self.rates:
            content["rates"] = {name: asdict(priors) for name, priors in sorted(self.rates.items())}
        return content

    @classmethod
    def from_json(cls, text: str) -> Priors:
        """Read what `to_json` wrote.

        Raises:
            ValueError: it is of another format, or holds what no priors hold.
        """
        raw = read_record(dict[str, Any], json.loads(text))
        if (file_format := raw.pop("format", None)) != FORMAT:
            raise ValueError(f"priors of format {file_format!r}: must be {FORMAT}")
        return cls._of(read_record(_Written, raw))

    @classmethod
    def _of(cls, written: _Written) -> Priors:
        return cls(
            classes=_read(written.classes),
            num_solutions=written.num_solutions,
            values=None if written.values is None else _read(written.values),
            agreement=None if written.agreement is None else cls._of(written.agreement),
            completers={
                name: cls._of(completer_priors)
                for name, completer_priors in written.completers.items()
            },
            rates=written.rates,
        )


def priors_of(classes: Mapping[str, ClassPriors], answer_class: str) -> ClassPriors:
    """The priors of an answer class; where it has none, the pooled ones with its guesses."""
    if answer_class in classes:
        return classes[answer_class]
    return guessing(classes[POOLED], chance_of(answer_class))


@lru_cache(maxsize=64)
def guessing(priors: ClassPriors, chance: float) -> ClassPriors:
    """Priors where a guess is right with a chance, see `ClassPriors.with_guesses`."""
    return priors.with_guesses(chance) if chance else priors


_Numbers = Mapping[str, Mapping[str, list[Any]]]


@dataclass(frozen=True, kw_only=True)
class _Written:
    """Priors as a file holds them."""

    classes: _Numbers
    num_solutions: Count
    values: _Numbers | None = None
    agreement: _Written | None = None
    completers: Mapping[str, _Written] = field(default_factory=dict)
    rates: Mapping[str, Rates] = field(default_factory=dict)


def _written(classes: Mapping[str, ClassPriors]) -> dict[str, Any]:
    return {
        name: {f.name: _listed(getattr(class_priors, f.name)) for f in fields(class_priors)}
        for name, class_priors in sorted(classes.items())
    }


def _read(classes: _Numbers) -> dict[str, ClassPriors]:
    if POOLED not in classes:
        raise ValueError(f"classes: must have {POOLED}, has {', '.join(classes) or 'none'}")
    return {name: _read_class(name, arrays) for name, arrays in classes.items()}


def _read_class(name: str, given: Mapping[str, list[Any]]) -> ClassPriors:
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
"""Shapes of the arrays of `ClassPriors` in files."""


def _listed(array: Floats) -> Any:
    return np.vectorize(lambda x: float(f"{x:.7g}"))(array).tolist()


@lru_cache(maxsize=1)
def starting_priors() -> Priors:
    """Read the priors that a run with one completer begins with.

    They were fitted to halves of three sets of solutions whose first errors are known: of `arith`,
    and of plain SmolLM2 on two sets of word problems (`tests/benchmarks/starting_priors.py`, which
    writes the file).
    """
    text = resources.files(__package__).joinpath(STARTING).read_text(encoding="utf-8")
    return Priors.from_json(text)


STARTING = "starting_priors.json"
"""File of the package that holds the starting priors."""


@lru_cache(maxsize=1)
def wide_priors() -> Priors:
    """The priors of runs with several completers, and those that the starting ones begin with.

    Values stay what they are while steps are right, fall to almost nothing at an error, and
    agreement is no evidence.
    """
    logit = np.log(GRID / (1 - GRID))
    to_go = np.arange(1, NUM_TO_GO + 1)[:, None]
    # If nothing else can go wrong than the steps to come, each is right with v ** (1 / r).
    # But a hopeless problem is no more likely to go wrong at its first step: the policy may be
    # blind to a later one. The bound was chosen on arith's validation problems.
    hazard = np.clip(1 - GRID ** (1 / to_go), 0.01, 0.15)
    kept = GRID ** ((to_go - 1) / to_go)
    drift = np.log(kept / (1 - np.minimum(kept, 0.9995)))
    sound = _kernel(drift, logit, width=1.0)
    fall = np.exp(-0.9 * np.arange(len(GRID)))
    wrong = np.broadcast_to(_normal(fall + 0.004), sound.shape)
    unsound = np.broadcast_to(_kernel(logit[None], logit, width=0.8), sound.shape)
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
    return Priors(classes={POOLED: priors}, num_solutions=0).as_written


def _kernel(centre: Floats, logit: Floats, *, width: float) -> Floats:
    """[r, grid, grid]: moves to about `centre`, on the scale of log odds."""
    near = np.exp(-0.5 * ((logit[None, None, :] - centre[..., None]) / width) ** 2)
    return _normal(_normal(near) + 0.05 / len(GRID))


def _at(values: Floats) -> Floats:
    """[value, grid]: each value as a mean of the two numbers of the grid beside it."""
    values = np.clip(values, GRID[0], GRID[-1])
    above = np.clip(np.searchsorted(GRID, values), 1, len(GRID) - 1)
    share = (values - GRID[above - 1]) / (GRID[above] - GRID[above - 1])
    weights = np.zeros((len(values), len(GRID)))
    weights[np.arange(len(values)), above] = share
    weights[np.arange(len(values)), above - 1] = 1 - share
    return weights


def _normal(rows: Floats) -> Floats:
    return np.asarray(rows / rows.sum(-1, keepdims=True))


def agreement_likelihood(same: NDArray[Any], others: NDArray[Any], parameters: Floats) -> Floats:
    """Chance that `same` of `others` samples take the same step (beta-binomial).

    Up to the number of ways, which does not depend on the state.

    Args:
        same: any shape.
        others: the same shape.
        parameters: [3, 2] of `ClassPriors.agreement`.

    Returns:
        [4, *shape]: of each kind of step, the largest being 1, and what the largest was.
    """
    m, n = same.astype(np.intp), others.astype(np.intp)
    a, b = parameters[:, :1], parameters[:, 1:]
    count = np.arange(int(n.max(initial=0)))

    def rising(x: Floats) -> Floats:
        """Logs of the rising factorials of x."""
        logs = np.add.accumulate(log(x + count), axis=1)
        return np.concatenate([np.zeros((3, 1)), logs], axis=1)

    likely = rising(a)[:, m] + rising(b)[:, n - m] - rising(a + b)[:, n]
    best = likely.max(0)
    return np.concatenate([exp(likely - best), exp(best)[None]])
