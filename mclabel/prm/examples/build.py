"""Labelled solutions as training examples: encoded, with a target for every step that has one."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Literal, overload

import numpy as np

from mclabel.data.leaks import leak_key
from mclabel.errors import DataError
from mclabel.prm.examples.encode import EncodedSolution, StepEncoder, TooLongError
from mclabel.prm.examples.targets import (
    Target,
    Weights,
    step_targets,
    step_weights,
    until_first_error,
)
from mclabel.records import LabeledSolution, Outcome

TooLong = Literal["drop", "cut"]
"""What becomes of a solution beyond `max_tokens`: left out, or cut after the last step that
fits."""


_RIGHT = {
    Outcome.RIGHT: True,
    Outcome.WRONG: False,
    Outcome.TRUNCATED: False,
    Outcome.UNGRADED: None,
}


@dataclass(frozen=True, kw_only=True)
class Example:
    """One solution to train on or to validate with."""

    problem_id: str
    encoded: EncodedSolution
    targets: tuple[float | None, ...]
    """One per step, in [0, 1]; None where there is no label."""
    weights: tuple[float, ...]
    """One per step, >= 0."""
    right: bool | None
    """The solution's answer is right; None where that is not known."""
    logprobs: tuple[float, ...] | None = None
    """One per token of `encoded`, NaN where there is none: what a teacher expected of it."""


class PackedExamples(Sequence[Example]):
    """Examples in flat arrays: a million of a thousand tokens take 4 GB, as objects they took ten
    times that. Either all of them have `logprobs`, which take as much again, or none.
    """

    def __init__(self, examples: Iterable[Example] = ()) -> None:
        self._problem_ids: list[str] = []
        self._known: dict[str, str] = {}
        self._ids, self._id_ends = array("i"), array("q", [0])
        self._positions, self._targets, self._weights = array("i"), array("d"), array("d")
        self._step_ends = array("q", [0])
        self._num_prompt, self._right = array("i"), array("b")
        self._logprobs = array("f")
        for example in examples:
            self.append(example)

    def append(self, example: Example) -> None:
        """Add one."""
        encoded = example.encoded
        self._problem_ids.append(self._known.setdefault(example.problem_id, example.problem_id))
        self._ids.extend(encoded.ids)
        self._id_ends.append(len(self._ids))
        self._positions.extend(encoded.positions)
        self._targets.extend(nan if t is None else t for t in example.targets)
        self._weights.extend(example.weights)
        self._step_ends.append(len(self._positions))
        self._num_prompt.append(encoded.num_prompt)
        self._right.append(-1 if example.right is None else example.right)
        self._logprobs.extend(example.logprobs or ())
        assert len(self._logprobs) in (0, len(self._ids)), (
            "log-probabilities for all examples, or none"
        )

    def __len__(self) -> int:
        return len(self._right)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        ids = slice(self._id_ends[index], self._id_ends[index + 1])
        steps = slice(self._step_ends[index], self._step_ends[index + 1])
        return Example(
            problem_id=self._problem_ids[index],
            encoded=EncodedSolution(
                ids=tuple(self._ids[ids]),
                num_prompt=self._num_prompt[index],
                positions=tuple(self._positions[steps]),
            ),
            targets=tuple(None if isnan(t) else t for t in self._targets[steps]),
            weights=tuple(self._weights[steps]),
            right=None if self._right[index] < 0 else bool(self._right[index]),
            logprobs=tuple(self._logprobs[ids]) if self._logprobs else None,
        )

    def __iter__(self) -> Iterator[Example]:
        return (self[index] for index in range(len(self)))

    @property
    def is_taught(self) -> bool:
        """Whether they have `logprobs`."""
        return bool(self._logprobs)

    @property
    def steps_per_token(self) -> float:
        """Weight of the steps that have a target for each token that a teacher has read: what makes
        the two losses count the same.
        """
        targets, weights = np.asarray(self._targets), np.asarray(self._weights)
        num_tokens = int((~np.isnan(np.asarray(self._logprobs))).sum())
        return float(weights[~np.isnan(targets)].sum()) / max(1, num_tokens)

    @property
    def lengths(self) -> list[int]:
        """Tokens of each."""
        return [b - a for a, b in zip(self._id_ends[:-1], self._id_ends[1:], strict=True)]

    @property
    def problem_ids(self) -> Sequence[str]:
        """Of each."""
        return self._problem_ids


@dataclass(kw_only=True)
class Examples:
    """The examples of a run, split by problem."""

    train: PackedExamples = field(default_factory=PackedExamples)
    validation: PackedExamples = field(default_factory=PackedExamples)
    num_unlabeled: int = 0
    """Solutions without any target."""
    num_leaked: int = 0
    """Solutions of problems that are in an evaluation set."""
    num_too_long: int = 0
    """Solutions left out because they are too long."""
    num_cut: int = 0
    """Solutions of which only the first steps are kept."""
    num_refused: int = 0
    """Solutions that cannot be encoded."""
    first_refused: str | None = None
    """Why the first of them, or of those that are too long, cannot."""


def make_examples(
    rows: Iterable[LabeledSolution],
    encoder: StepEncoder,
    *,
    target: Target,
    validation: float = 0.1,
    weights: Weights = "equal",
    to_first_error: bool = False,
    too_long: TooLong = "drop",
    leaks: frozenset[str] = frozenset(),
    limit: int | None = None,
    keep_unlabeled: bool = False,
) -> Examples:
    """Encode labelled solutions and split them by problem. Rows are read once, as a stream.

    Args:
        rows: labelled solutions.
        encoder: of the scorer that is to be trained.
        target: which view of the labels is learned.
        validation: share of problems kept for validation, by a hash of their text.
        weights: of the steps in the loss.
        to_first_error: steps after the first wrong one teach nothing.
        too_long: what becomes of solutions beyond the scorer's longest input.
        leaks: `leak_key` of problems that must not be trained on.
        limit: of the solutions to train on; those that come first are kept.
        keep_unlabeled: train on solutions without a target, too: a teacher will give them one.

    Raises:
        DataError: no example is left to train on.
    """
    found = Examples()
    for row in rows:
        if limit is not None and len(found.train) == limit:
            break
        if leaks and leak_key(row.problem.text) in leaks:
            found.num_leaked += 1
            continue
        targets = step_targets(row, target)
        if to_first_error:
            targets = until_first_error(targets, row.first_error)
        held_out = is_held_out(row.problem.text, validation)
        kept_anyway = keep_unlabeled and not held_out
        if not kept_anyway and all(t is None for t in targets):
            found.num_unlabeled += 1
            continue
        try:
            encoded = encoder.labeled(row, cut=too_long == "cut")
        except DataError as error:
            found.num_too_long += isinstance(error, TooLongError)
            found.num_refused += not isinstance(error, TooLongError)
            found.first_refused = found.first_refused or str(error)
            continue
        kept = len(encoded.positions)
        if not kept_anyway and all(t is None for t in targets[:kept]):
            found.num_too_long += 1
            continue
        found.num_cut += kept < len(targets)
        (found.validation if held_out else found.train).append(
            Example(
                problem_id=row.problem.id,
                encoded=encoded,
                targets=targets[:kept],
                weights=step_weights(row, weights)[:kept],
                right=_RIGHT[row.solution.outcome],
            )
        )
    if not found.train:
        raise DataError(_nothing_left(found, target))
    return found


def _nothing_left(found: Examples, target: Target) -> str:
    left_out = found.num_refused + found.num_too_long
    why = f", {left_out} are refused, the first because {found.first_refused}" if left_out else ""
    leaked = f", {found.num_leaked} are in an evaluation set" if found.num_leaked else ""
    return (
        f"no labels left to train on: {found.num_unlabeled} solutions have no {target} label, "
        f"{len(found.validation)} are kept for validation{leaked}{why}. Label more problems, or "
        "choose another target"
    )


def is_held_out(problem_text: str, share: float) -> bool:
    """Whether a problem is kept for validation; equal texts always go together."""
    normalized = " ".join(problem_text.split()).casefold()
    digest = hashlib.sha256(b"validation:" + normalized.encode()).digest()
    return int.from_bytes(digest[:4]) < share * 2**32
