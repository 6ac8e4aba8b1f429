"""Examples as the trainer takes them: one by one with what was made of them, and in batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from mclabel.prm.batch import StepBatch, make_batch, map_solutions
from mclabel.prm.encode import EncodedSolution
from mclabel.prm.examples import Example, PackedExamples
from mclabel.prm.model import StepModel

MAX_OBSERVED_BYTES = 2 * 2**30
"""What a frozen body says of the examples is kept if it is no more than this."""


def observe(
    model: StepModel, examples: PackedExamples, on_progress: Callable[[int, int, str], None]
) -> list[Tensor] | None:
    """What a frozen body says of every step, computed once; None if that is too much to keep."""
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
    """One example with what was made of it beforehand."""

    example: Example
    observed: Tensor | None
    """What a frozen body says of its steps [steps, width]."""
    factors: tuple[float, float] | None
    """Of the weights of wrong and of sound steps."""


class Items(Dataset[Item]):
    """All examples of a training run."""

    def __init__(
        self,
        examples: PackedExamples,
        observed: Sequence[Tensor] | None,
        factors: tuple[float, float] | None,
    ) -> None:
        self.examples, self._observed, self._factors = examples, observed, factors

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Item:
        observed = self._observed[index] if self._observed else None
        return Item(self.examples[index], observed, self._factors)


def collate(items: Sequence[Item]) -> dict[str, Tensor]:
    """A micro-batch: what the model reads or what its frozen body said, targets and weights.

    Targets and weights are [batch, steps], NaN and 0 where there is no step; `num_steps`, `right`
    (-1 unknown) and `problems` (equal numbers for one problem) are [batch].
    """
    examples = [item.example for item in items]
    observed = [item.observed for item in items if item.observed is not None]
    if observed:
        inputs = {"observed": pad_sequence(observed, batch_first=True)}
    else:
        inputs = {
            name: part
            for name, part in vars(make_batch([e.encoded for e in examples])).items()
            if part is not None
        }
    numbers: dict[str, int] = {}
    nan = float("nan")
    targets = _padded([[nan if t is None else t for t in e.targets] for e in examples], nan)
    weights = _padded([e.weights for e in examples], 0.0)
    if (factors := items[0].factors) is not None:
        weights *= targets.nan_to_num() * (factors[1] - factors[0]) + factors[0]
    return {
        **inputs,
        "targets": targets,
        "weights": weights,
        "num_steps": torch.tensor([len(e.targets) for e in examples]),
        "right": torch.tensor([-1 if e.right is None else int(e.right) for e in examples]),
        "problems": torch.tensor(
            [numbers.setdefault(e.problem_id, len(numbers)) for e in examples]
        ),
    }


def num_pieces(lengths: Sequence[int], most_tokens: int) -> int:
    """The fewest pieces of as many solutions each that hold no more tokens, padding included.

    Args:
        lengths: of a batch's solutions, in tokens.
        most_tokens: in a piece; one solution may have more.
    """
    ordered = sorted(lengths, reverse=True)
    for number in range(1, len(ordered)):
        size = math.ceil(len(ordered) / number)
        if all(size * longest <= most_tokens for longest in ordered[::size]):
            return number
    return len(ordered)


def cut(batch: dict[str, Tensor], number: int) -> list[dict[str, Tensor]]:
    """A micro-batch in so many pieces, the longest solutions together, with no more padding than
    they need.
    """
    if number == 1:
        return [batch]
    order = batch["mask"].sum(1).argsort(descending=True, stable=True)
    pieces = []
    for rows in order.tensor_split(number):
        piece = {name: part[rows] for name, part in batch.items()}
        width, steps = int(piece["mask"].sum(1).max()), int(piece["num_steps"].max())
        for names, most in ((("ids", "mask"), width), (("positions", "targets", "weights"), steps)):
            piece |= {name: piece[name][:, :most] for name in names}
        pieces.append(piece)
    return pieces


def _padded(rows: Sequence[Sequence[float]], padding: float) -> Tensor:
    most = max(map(len, rows))
    return torch.tensor([[*row, *[padding] * (most - len(row))] for row in rows])
