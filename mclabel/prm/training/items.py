"""Examples as the trainer takes them: in which order, one by one, and in batches that are cut into
pieces.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset, Sampler

from mclabel.prm.examples.batch import StepBatch, make_batch, map_solutions
from mclabel.prm.examples.encode import EncodedSolution, Example, PackedExamples
from mclabel.prm.model.network import StepModel

MAX_OBSERVED_BYTES = 2 * 2**30
"""Most memory for what a frozen body gives for the examples; beyond it, nothing is kept."""


def observe(
    model: StepModel, examples: PackedExamples, on_progress: Callable[[int, int, str], None]
) -> list[Tensor] | None:
    """Return what a frozen body gives for every step, computed once; None if that is too much to
    keep.
    """
    model.eval()
    num_steps = sum(len(example.targets) for example in examples)
    if 4 * num_steps * model.observed_width > MAX_OBSERVED_BYTES:
        return None

    def compute(batch: StepBatch, group: Sequence[EncodedSolution]) -> list[Tensor]:
        rows = model.observe(batch).cpu()
        return [row[: len(e.positions)].clone() for row, e in zip(rows, group, strict=True)]

    return map_solutions(
        [example.encoded for example in examples],
        compute,
        network=model.network,
        threads=torch.get_num_threads(),
        on_progress=lambda done, total: on_progress(0, 0, f"{done} of {total} solutions read"),
    )


def balance(examples: PackedExamples) -> tuple[float, float]:
    """Factors of the weights of wrong and of sound steps, by which both come to half of all."""
    sound = wrong = 0.0
    for example in examples:
        for target, weight in zip(example.targets, example.weights, strict=True):
            if target is not None:
                sound, wrong = sound + weight * target, wrong + weight * (1 - target)
    total = sound + wrong
    return (total / (2 * wrong) if wrong else 1.0, total / (2 * sound) if sound else 1.0)


@dataclass(frozen=True)
class Item:
    """One example, with what was computed from it before training."""

    example: Example
    observed: Tensor | None
    """States of a frozen body for its steps [steps, width]."""
    factors: tuple[float, float] | None
    """Factors of the weights of wrong and of sound steps."""


class Items(Dataset[Item]):
    """All examples of a training run."""

    def __init__(
        self,
        examples: PackedExamples,
        observed: Sequence[Tensor] | None,
        factors: tuple[float, float] | None,
    ) -> None:
        self.examples, self._observed, self._factors = examples, observed, factors
        lengths = examples.lengths
        self._shortest = min(range(len(lengths)), key=lengths.__getitem__, default=0)

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Item:
        """An example; behind the last, the shortest one without its labels, to fill a batch."""
        nothing = index == len(self.examples)
        index = self._shortest if nothing else index
        example = self.examples[index]
        if nothing:
            targets = (None,) * len(example.targets)
            example = replace(example, problem_id="", targets=targets, right=None)
        observed = self._observed[index] if self._observed else None
        return Item(example, observed, self._factors)


def collate(items: Sequence[Item]) -> dict[str, Tensor]:
    """A worker's batch: what the model reads or what its frozen body gave, targets and weights.

    Targets and weights are [batch, steps], NaN and 0 where there is no step; `num_steps` is
    [batch].
    """
    examples, nan = [item.example for item in items], float("nan")
    observed = [item.observed for item in items if item.observed is not None]
    if observed:
        inputs = {"observed": pad_sequence(observed, batch_first=True)}
    else:
        inputs = {
            name: part
            for name, part in vars(make_batch([e.encoded for e in examples])).items()
            if part is not None
        }
    targets = _padded([[nan if t is None else t for t in e.targets] for e in examples], nan)
    weights = _padded([e.weights for e in examples], 0.0)
    if (factors := items[0].factors) is not None:
        weights *= targets.nan_to_num() * (factors[1] - factors[0]) + factors[0]
    return {
        **inputs,
        "targets": targets,
        "weights": weights,
        "num_steps": torch.tensor([len(e.targets) for e in examples]),
    }


def longest_first(batch: dict[str, Tensor]) -> list[int]:
    """Rows of a batch, the longest first."""
    lengths = batch["mask"].sum(1).tolist()
    return sorted(range(len(lengths)), key=lambda row: -lengths[row])


def num_pieces(batch: dict[str, Tensor], rows: Sequence[int], most_tokens: int) -> int:
    """The fewest pieces of about as many rows each that hold no more tokens, padding included.

    Args:
        batch: as `collate` makes it.
        rows: in the order in which they are cut.
        most_tokens: in a piece; a single row may have more.
    """
    lengths = batch["mask"].sum(1).tolist()
    for number in range(1, len(rows)):
        pieces = _split(rows, number)
        if all(len(some) * max(lengths[row] for row in some) <= most_tokens for some in pieces):
            return number
    return len(rows)


def cut(batch: dict[str, Tensor], rows: Sequence[int], number: int) -> list[dict[str, Tensor]]:
    """A batch in so many pieces, with no more padding than they need.

    Where there are more pieces than rows, the last ones hold a solution of weight 0.
    """
    pieces = []
    for some in _split(rows, number):
        chosen = torch.tensor(list(some or rows[-1:]))
        piece = {name: part[chosen] if part.dim() else part for name, part in batch.items()}
        width, steps = int(piece["mask"].sum(1).max()), int(piece["num_steps"].max())
        of_tokens, of_steps = ("ids", "mask"), ("positions", "targets", "weights")
        for names, most in ((of_tokens, width), (of_steps, steps)):
            piece |= {name: piece[name][:, :most] for name in names if name in piece}
        if not some:
            piece["weights"] = torch.zeros_like(piece["weights"])
        pieces.append(piece)
    return pieces


def _split(rows: Sequence[int], number: int) -> list[Sequence[int]]:
    size, longer = divmod(len(rows), number)
    ends = [i * size + min(i, longer) for i in range(number + 1)]
    return [rows[a:b] for a, b in pairwise(ends)]


def _padded(rows: Sequence[Sequence[float]], padding: float) -> Tensor:
    most = max(map(len, rows))
    return torch.tensor([[*row, *[padding] * (most - len(row))] for row in rows])


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
        *,
        fill: bool = False,
    ) -> None:
        """Order the examples of every epoch.

        Args:
            lengths: lengths of the examples, in tokens.
            batch_size: batch size of an optimizer step, over all workers.
            seed: seed of the order.
            fill: fill the last batch up with the index behind the last example. Several workers
                must have equal shares, and would be given examples twice.
        """
        self._lengths, self._batch_size, self._seed = lengths, batch_size, seed
        self._missing = -len(lengths) % batch_size if fill else 0
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order comes next."""
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._lengths) + self._missing

    def __iter__(self) -> Iterator[int]:
        rng = random.Random(f"{self._seed}:{self._epoch}")
        order = rng.sample(range(len(self._lengths)), len(self._lengths))
        span = self._batch_size * MEGABATCH
        groups = []
        for start in range(0, len(order), span):
            part = sorted(order[start : start + span], key=self._lengths.__getitem__)
            groups += [
                part[i : i + self._batch_size] for i in range(0, len(part), self._batch_size)
            ]
        # A short batch can only come last: the loader cuts the order every batch_size indices.
        whole = [group for group in groups if len(group) == self._batch_size]
        rng.shuffle(whole)
        rest = [group for group in groups if len(group) < self._batch_size]
        nothing = [len(self._lengths)] * self._missing
        return (index for group in (*whole, *rest, nothing) for index in group)
