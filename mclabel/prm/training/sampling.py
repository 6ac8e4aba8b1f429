"""The order in which training reads its examples."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from torch.utils.data import Sampler

MEGABATCH = 50
"""Batches among whose solutions neighbours in length are put together."""


class LengthGroupedSampler(Sampler[int]):
    """Shuffled indices, those of a batch of similar length.

    The order is a function of seed and epoch alone, so that a run resumed in the middle of an
    epoch goes on with the batches that were left; that of transformers is not.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        batch_size: int,
        seed: int,
        problems: Sequence[str] | None = None,
        *,
        fill: bool = False,
    ) -> None:
        """Order the examples of every epoch.

        Args:
            lengths: of the examples, in tokens.
            batch_size: of an optimizer step, over all workers.
            seed: of the order.
            problems: of the examples; those of one problem are then kept together.
            fill: fill the last batch up with the index behind the last example. Several workers
                must have equal shares, and would be given examples twice.
        """
        self._lengths, self._batch_size, self._seed = lengths, batch_size, seed
        self._problems = problems
        self._missing = -len(lengths) % batch_size if fill else 0
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order comes next."""
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._lengths) + self._missing

    def __iter__(self) -> Iterator[int]:
        rng = random.Random(f"{self._seed}:{self._epoch}")
        order = self._shuffled(rng)
        span = self._batch_size * MEGABATCH
        groups = []
        for start in range(0, len(order), span):
            part = self._by_length(order[start : start + span])
            groups += [
                part[i : i + self._batch_size] for i in range(0, len(part), self._batch_size)
            ]
        # A short batch can only come last: the loader cuts the order every batch_size indices.
        whole = [group for group in groups if len(group) == self._batch_size]
        rng.shuffle(whole)
        rest = [group for group in groups if len(group) < self._batch_size]
        nothing = [len(self._lengths)] * self._missing
        return (index for group in (*whole, *rest, nothing) for index in group)

    def _shuffled(self, rng: random.Random) -> list[int]:
        if self._problems is None:
            return rng.sample(range(len(self._lengths)), len(self._lengths))
        members = self._members(range(len(self._lengths)))
        return [
            i for unit in rng.sample(members, len(members)) for i in rng.sample(unit, len(unit))
        ]

    def _by_length(self, part: Sequence[int]) -> list[int]:
        if self._problems is None:
            return sorted(part, key=self._lengths.__getitem__)
        units = self._members(part)
        units.sort(key=lambda unit: max(self._lengths[i] for i in unit))
        return [i for unit in units for i in unit]

    def _members(self, indices: Sequence[int]) -> list[list[int]]:
        """The indices by problem, in the order in which problems come up."""
        assert self._problems is not None
        units: dict[str, list[int]] = {}
        for index in indices:
            units.setdefault(self._problems[index], []).append(index)
        return list(units.values())
