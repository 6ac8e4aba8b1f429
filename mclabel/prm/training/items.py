"""Input of the trainer: the order of the examples, their batches, and pieces of batches.

A batch is cut into pieces (micro-batches) that fit into memory.
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
from mclabel.prm.training.distributed import is_sharded

MAX_HEAD_INPUT_BYTES = 2 * 2**30
"""Maximum memory for the cached outputs of a frozen body. If all outputs need more, none is
cached."""


def precompute_head_inputs(
    model: StepModel, examples: PackedExamples, on_progress: Callable[[int, int, str], None]
) -> list[Tensor] | None:
    """Compute a frozen body's outputs for the steps of all examples, before training.

    Args:
        model: step model whose body is frozen.
        examples: training examples.
        on_progress: called with 0, 0 (no optimizer step is done) and a text that says how many
            solutions are done.

    Returns:
        One tensor [steps, width] per example, or None if all outputs would take more than
        `MAX_HEAD_INPUT_BYTES`.
    """
    model.eval()
    num_steps = sum(len(example.targets) for example in examples)
    if 4 * num_steps * model.head_input_width > MAX_HEAD_INPUT_BYTES:
        return None

    def compute(batch: StepBatch, group: Sequence[EncodedSolution]) -> list[Tensor]:
        rows = model(batch, with_head=False).cpu()
        return [row[: len(e.positions)].clone() for row, e in zip(rows, group, strict=True)]

    return map_solutions(
        [example.encoded for example in examples],
        compute,
        network=model.network,
        # Workers with a sharded model gather its layers together, in the same order.
        threads=1 if is_sharded(model) else torch.get_num_threads(),
        on_progress=lambda done, total: on_progress(0, 0, f"{done} of {total} solutions read"),
    )


def compute_wrong_and_sound_factors(examples: PackedExamples) -> tuple[float, float]:
    """Return factors for the weights of wrong steps and of sound steps, in this order.

    With these factors, each of the two classes has half of the total weight.
    """
    sound = wrong = 0.0
    for example in examples:
        for target, weight in zip(example.targets, example.weights, strict=True):
            if target is not None:
                sound, wrong = sound + weight * target, wrong + weight * (1 - target)
    total = sound + wrong
    return (total / (2 * wrong) if wrong else 1.0, total / (2 * sound) if sound else 1.0)


@dataclass(frozen=True)
class TrainingItem:
    """One example, with values computed from it before training."""

    example: Example
    head_inputs: Tensor | None
    """Cached outputs of a frozen body for the example's steps [steps, width]; None if the outputs
    are not cached."""
    wrong_and_sound_factors: tuple[float, float] | None
    """Factors for the weights of wrong steps and of sound steps, from
    `compute_wrong_and_sound_factors`; None leaves the weights unchanged."""


class TrainingItems(Dataset[TrainingItem]):
    """All examples of a training run, as a torch dataset."""

    def __init__(
        self,
        examples: PackedExamples,
        head_inputs: Sequence[Tensor] | None,
        wrong_and_sound_factors: tuple[float, float] | None,
    ) -> None:
        self.examples, self._head_inputs, self._factors = (
            examples,
            head_inputs,
            wrong_and_sound_factors,
        )
        lengths = examples.lengths
        self._shortest = min(range(len(lengths)), key=lengths.__getitem__, default=0)

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> TrainingItem:
        """Return the example at an index; the index `len(self)` returns a filler for a batch.

        The filler is the shortest example without its labels.
        """
        nothing = index == len(self.examples)
        index = self._shortest if nothing else index
        example = self.examples[index]
        if nothing:
            example = replace(
                example, problem_id="", targets=(None,) * len(example.targets), is_right=None
            )
        return TrainingItem(
            example, self._head_inputs[index] if self._head_inputs else None, self._factors
        )


def collate(items: Sequence[TrainingItem]) -> dict[str, Tensor]:
    """Join items into a worker's batch.

    Returns:
        Tensors by name: either the fields of a `StepBatch` or the cached outputs `head_inputs`;
        `targets` [batch, steps], padded with NaN; `weights` [batch, steps], padded with 0; and
        `num_steps` [batch].
    """
    examples, nan = [item.example for item in items], float("nan")
    head_inputs = [item.head_inputs for item in items if item.head_inputs is not None]
    if head_inputs:
        inputs = {"head_inputs": pad_sequence(head_inputs, batch_first=True)}
    else:
        inputs = {
            name: part
            for name, part in vars(make_batch([e.encoded for e in examples])).items()
            if part is not None
        }
    targets = _pad_rows([[nan if t is None else t for t in e.targets] for e in examples], nan)
    weights = _pad_rows([e.weights for e in examples], 0.0)
    if (factors := items[0].wrong_and_sound_factors) is not None:
        weights *= targets.nan_to_num() * (factors[1] - factors[0]) + factors[0]
    return {
        **inputs,
        "targets": targets,
        "weights": weights,
        "num_steps": torch.tensor([len(e.targets) for e in examples]),
    }


def sort_rows_longest_first(batch: dict[str, Tensor]) -> list[int]:
    """Return the row indices of a batch, sorted from the longest row to the shortest."""
    lengths = batch["mask"].sum(1).tolist()
    return sorted(range(len(lengths)), key=lambda row: -lengths[row])


def choose_num_pieces(batch: dict[str, Tensor], rows: Sequence[int], max_tokens: int) -> int:
    """Return the smallest number of equal pieces in which no piece has too many tokens.

    Args:
        batch: result of `collate`.
        rows: row indices in the order in which they are distributed over pieces.
        max_tokens: maximum number of tokens in a piece, including padding. A piece of a single
            row may have more.
    """
    lengths = batch["mask"].sum(1).tolist()
    for number in range(1, len(rows)):
        pieces = _split_evenly(rows, number)
        if all(len(some) * max(lengths[row] for row in some) <= max_tokens for some in pieces):
            return number
    return len(rows)


def cut_batch_into_pieces(
    batch: dict[str, Tensor], rows: Sequence[int], num_pieces: int
) -> list[dict[str, Tensor]]:
    """Cut a batch into pieces, each without unnecessary padding.

    If there are more pieces than rows, the last pieces hold a solution with weight 0.

    Args:
        batch: result of `collate`.
        rows: row indices in the order in which they are distributed over pieces.
        num_pieces: number of pieces.
    """
    pieces = []
    for some in _split_evenly(rows, num_pieces):
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


def _split_evenly(rows: Sequence[int], num_parts: int) -> list[Sequence[int]]:
    size, longer = divmod(len(rows), num_parts)
    ends = [i * size + min(i, longer) for i in range(num_parts + 1)]
    return [rows[a:b] for a, b in pairwise(ends)]


def _pad_rows(rows: Sequence[Sequence[float]], padding: float) -> Tensor:
    most = max(map(len, rows))
    return torch.tensor([[*row, *[padding] * (most - len(row))] for row in rows])


MEGABATCH = 50
"""Number of batches whose solutions are sorted by length as one list."""


class LengthGroupedSampler(Sampler[int]):
    """Yields shuffled example indices, so that the examples of a batch have similar lengths.

    The order depends only on the seed and the epoch. A run that is resumed within an epoch
    therefore continues with the remaining batches. The sampler of transformers does not guarantee
    this.
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
            batch_size: number of examples in an optimizer step, over all workers.
            seed: random seed of the order.
            fill: true to fill up the last batch with the index `len(lengths)`, the filler of
                `TrainingItems`. Several workers need equal shares; without fillers, the loader
                would repeat examples.
        """
        self._lengths, self._batch_size, self._seed = lengths, batch_size, seed
        self._missing = -len(lengths) % batch_size if fill else 0
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, counted from 0, for the order of the next iteration."""
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
        # An incomplete batch must come last: the loader cuts the order every batch_size indices.
        whole = [group for group in groups if len(group) == self._batch_size]
        rng.shuffle(whole)
        rest = [group for group in groups if len(group) < self._batch_size]
        nothing = [len(self._lengths)] * self._missing
        return (index for group in (*whole, *rest, nothing) for index in group)
