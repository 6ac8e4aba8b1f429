"""Checks of the training data before training, for faults that would not stop training but spoil
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal

import numpy as np

from mclabel.core.errors import DataError
from mclabel.prm.examples.build import Examples
from mclabel.prm.examples.encode import Example
from mclabel.prm.examples.targets import find_target

NUM_SHOWN = 3
"""Number of examples that the report shows token by token."""
MIN_OTHERS, PER_OTHER = 10, 1000
"""At least one label in `PER_OTHER` must differ from the most frequent label; `MIN_OTHERS` such
labels are always enough."""
TOKENS_BEFORE = 6
"""Number of tokens shown before the token at which a step is scored."""


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """Figures of the training data."""

    num_train: int
    """Number of training solutions."""
    num_validation: int
    """Number of validation solutions."""
    num_steps: int
    """Number of steps of the training solutions."""
    num_labels: int
    """Number of training steps with a target."""
    num_sound: int
    """Number of training steps with a target above 0.5."""
    mean_target: float
    most_frequent: float
    """Value of the most frequent target, in [0, 1]."""
    num_others: int
    """Number of labelled training steps whose target differs from `most_frequent`."""
    target: str
    """Name of the target, as in `TARGETS`."""
    token_lengths: tuple[int, int, int]
    """Number of tokens of a training example: median, 95th percentile and maximum."""
    left_out: dict[str, int]
    """Number of solutions that are not trained on, by reason."""
    first_refused: str | None
    """Message on the first solution that was refused; None if none was."""
    shown: tuple[str, ...]
    """Some training examples as text, token by token."""
    fitting: str | None = None
    """Description of the trained weights, learning rates, device and precision; None if unknown."""

    def lines(self, *, examples: bool) -> Iterator[str]:
        """Yield the lines of the report for a terminal.

        Args:
            examples: true to include the examples, token by token.
        """
        if examples:
            yield from self.shown
        if self.fitting is not None:
            yield self.fitting
        wrong = self.num_labels - self.num_sound
        share = wrong / max(1, self.num_labels)
        median, most_but_few, most = self.token_lengths
        yield (
            f"{self.num_train} solutions to train on, {self.num_validation} to validate with; "
            f"{self.num_labels} of {self.num_steps} steps labelled: {self.num_sound} sound, "
            f"{wrong} wrong ({share:.0%}), mean target {self.mean_target:.2f}; "
            f"tokens: median {median}, 95% {most_but_few}, most {most}"
        )
        named = ", ".join(f"{count} {why}" for why, count in self.left_out.items() if count)
        if named:
            first = f" The first: {self.first_refused}" if self.first_refused else ""
            yield f"left out: {named}.{first}"

    def check_targets_differ(self) -> None:
        """Refuse labels that are almost all equal: a model would learn a constant from them.

        Raises:
            DataError: too few labels differ from the most frequent one. The message names that
                label and the remedy.
        """
        few = min(MIN_OTHERS, ceil(self.num_labels / PER_OTHER))
        if self.num_others >= few:
            return
        alike = f"{self.num_labels - self.num_others:,} of {self.num_labels:,} {self.target} labels"
        raise DataError(
            f"{alike} to train on are {self.most_frequent:.4g}, so the model would learn a "
            f"constant. At least {few} must differ from it. {_REMEDIES[self._most_frequent_kind]}. "
            "`mclabel labels RUN` shows more figures of a run's labels"
        )

    @property
    def _most_frequent_kind(self) -> Literal["wrong", "sound", "level"]:
        if find_target(self.target).is_change:
            return "level"
        return "sound" if self.most_frequent > 0.5 else "wrong"


_REMEDIES: Mapping[str, str] = {
    "wrong": "Label easier problems (problems.source) or use a stronger policy.model, and check "
    "that solutions are not cut off (policy.max_tokens)",
    "sound": "Label harder problems (problems.source), more solutions (solutions.per_problem), "
    "or balance them (solutions.balance)",
    "level": "The value hardly changes from step to step. Label problems that the policy solves "
    "only sometimes, or choose another target",
}


def preflight(
    examples: Examples,
    *,
    target: str,
    decode: Callable[[Sequence[int]], str],
) -> Preflight:
    """Check every training example, and return figures of all examples.

    Args:
        examples: examples of a training run.
        target: name of the target that is learned.
        decode: function that decodes token ids to text.

    Raises:
        DataError: no position carries a label, or positions, targets and step tokens of an example
            do not match.
    """
    lengths, num_steps, sound = [], 0, []
    for example in examples.train:
        lengths.append(len(example.encoded.ids))
        num_steps += len(example.targets)
        sound += [t for t in example.targets if t is not None]
    (most_frequent, number), *_ = Counter(sound).most_common(1)
    median, most_but_few, most = (int(q) for q in np.percentile(lengths, [50, 95, 100]))
    return Preflight(
        num_train=len(examples.train),
        num_validation=len(examples.validation),
        num_steps=num_steps,
        num_labels=len(sound),
        num_sound=sum(t > 0.5 for t in sound),
        mean_target=float(np.mean(sound)),
        most_frequent=most_frequent,
        num_others=len(sound) - number,
        target=target,
        token_lengths=(median, most_but_few, most),
        left_out={
            f"without a {target} label": examples.num_unlabeled,
            "that a consensus of judges does not keep": examples.num_not_kept,
            "in an evaluation set": examples.num_leaked,
            "too long": examples.num_too_long,
            "that cannot be encoded": examples.num_refused,
            "rows of evaluation sets without a problem": examples.num_unread,
            "(counted above) cut after the last step that fits": examples.num_cut,
        },
        first_refused=examples.first_refused,
        shown=tuple(
            _format_example(number, example, decode)
            for number, example in enumerate(examples.train[:NUM_SHOWN], 1)
        ),
    )


def _format_example(number: int, example: Example, decode: Callable[[Sequence[int]], str]) -> str:
    encoded, start = example.encoded, example.encoded.num_prompt
    lines = [f"example {number} (problem {example.problem_id})"]
    lines.append(f"  prompt {start} tokens … {decode(encoded.ids[max(0, start - 12) : start])!r}")
    for position, target in zip(encoded.positions, example.targets, strict=True):
        tokens = [
            f"{i}:{decode(encoded.ids[i : i + 1])!r}"
            for i in range(max(start, position - TOKENS_BEFORE), position + 1)
        ]
        label = "no label" if target is None else f"{target:.2f}"
        lines.append(f"  {'  '.join(tokens)}  <- {label}")
        start = position + 1
    return "\n".join(lines)
