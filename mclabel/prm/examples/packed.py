"""Training examples, and millions of them in memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import overload

from mclabel.prm.examples.encode import EncodedSolution


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
    """Whether the solution's answer is right; None where that is not known."""
    trials: tuple[int, ...] = ()
    """One per step: trials of which its target is a share, 0 where there is none. Empty where the
    target has no counts."""


class PackedExamples(Sequence[Example]):
    """Examples in flat arrays: a million of a thousand tokens take 4 GB.

    As objects they would take ten times that.
    """

    def __init__(self, examples: Iterable[Example] = ()) -> None:
        self._problem_ids: list[str] = []
        self._known: dict[str, str] = {}
        self._ids, self._id_ends = array("i"), array("q", [0])
        self._positions, self._targets, self._weights = array("i"), array("d"), array("d")
        self._trials, self._step_ends = array("q"), array("q", [0])
        self._num_prompt, self._right = array("i"), array("b")
        for example in examples:
            self.append(example)

    def append(self, example: Example) -> None:
        """Add an example."""
        encoded = example.encoded
        self._problem_ids.append(self._known.setdefault(example.problem_id, example.problem_id))
        self._ids.extend(encoded.ids)
        self._id_ends.append(len(self._ids))
        self._positions.extend(encoded.positions)
        self._targets.extend(nan if t is None else t for t in example.targets)
        self._weights.extend(example.weights)
        self._trials.extend(example.trials)
        self._step_ends.append(len(self._positions))
        self._num_prompt.append(encoded.num_prompt)
        self._right.append(-1 if example.right is None else example.right)

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
            trials=tuple(self._trials[steps]),
        )

    def __iter__(self) -> Iterator[Example]:
        return (self[index] for index in range(len(self)))

    @property
    def lengths(self) -> list[int]:
        """Number of tokens of each."""
        return [b - a for a, b in zip(self._id_ends[:-1], self._id_ends[1:], strict=True)]

    @property
    def problem_ids(self) -> Sequence[str]:
        """The problem of each."""
        return self._problem_ids
