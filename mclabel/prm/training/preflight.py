"""Checks the data before it is trained on, for what would otherwise go wrong in silence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, inf
from typing import Literal

import numpy as np

from mclabel.core.errors import DataError
from mclabel.prm.examples.build import Examples
from mclabel.prm.examples.encode import Example
from mclabel.prm.examples.targets import target_of

NUM_SHOWN = 3
MIN_OTHERS, PER_OTHER = 10, 1000
"""Labels that must differ from the most frequent one: one in a thousand, ten at most."""
TOKENS_BEFORE = 6
"""Tokens of a step that are shown before the one at which it is scored."""


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """Figures of the training data."""

    num_train: int
    num_validation: int
    num_steps: int
    num_labels: int
    """Steps with a target."""
    num_sound: int
    """Steps with a target above 0.5."""
    mean_target: float
    most_frequent: float
    """The target that most steps have."""
    num_others: int
    """Steps with another target than that one."""
    target: str
    token_lengths: tuple[int, int, int]
    """Tokens of an example: median, 95th percentile, most."""
    left_out: dict[str, int]
    """Solutions that are not trained on, by reason."""
    first_refused: str | None
    shown: tuple[str, ...]
    """Some examples, token by token."""
    fitting: str | None = None
    """Description of the trained weights, rates, device and precision, if that is known."""

    def lines(self, *, examples: bool) -> Iterator[str]:
        """Yield the lines of the report for a terminal.

        Args:
            examples: print the examples, too.
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

    def check_differ(self) -> None:
        """Refuse labels that are all the same, or all but a handful: they teach a constant.

        Raises:
            DataError: names the label, and what to change.
        """
        few = min(MIN_OTHERS, ceil(self.num_labels / PER_OTHER))
        if self.num_others >= few:
            return
        alike = f"{self.num_labels - self.num_others:,} of {self.num_labels:,} {self.target} labels"
        raise DataError(
            f"{alike} to train on are {self.most_frequent:.4g}, so the model would learn a "
            f"constant. At least {few} must differ from it. {_REMEDIES[self._kind]}. "
            "`mclabel labels RUN` shows more of a run's health"
        )

    @property
    def _kind(self) -> Literal["wrong", "sound", "level"]:
        if target_of(self.target).is_change:
            return "level"
        return "sound" if self.most_frequent > 0.5 else "wrong"


_REMEDIES: Mapping[str, str] = {
    "wrong": "Label easier problems (problems.source) or with a stronger policy.model, and see "
    "that solutions are not cut (policy.max_tokens)",
    "sound": "Label harder problems (problems.source), more solutions (solutions.per_problem), "
    "or balance them (solutions.balance)",
    "level": "No step changes the value: label problems that the policy solves sometimes, or "
    "choose another target",
}


def preflight(
    examples: Examples,
    *,
    target: str,
    step_id: int | None,
    decode: Callable[[Sequence[int]], str],
) -> Preflight:
    """Check every example, and give the figures of all.

    Args:
        examples: that are to be trained on.
        target: name of the view of labels that is learned.
        step_id: step id of the step token, None if steps are scored at their own last token.
        decode: token ids to text.

    Raises:
        DataError: no position carries a label, or positions, targets and step tokens of an example
            do not match.
    """
    lengths, num_steps, sound = [], 0, []
    for example in examples.train:
        _check(example, step_id)
        lengths.append(len(example.encoded.ids))
        num_steps += len(example.targets)
        sound += [t for t in example.targets if t is not None]
    if not sound:
        raise DataError(f"no step has a {target} label. Choose another target")
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
            _show(number, example, decode)
            for number, example in enumerate(examples.train[:NUM_SHOWN], 1)
        ),
    )


def _check(example: Example, step_id: int | None) -> None:
    encoded = example.encoded
    if not len(encoded.positions) == len(example.targets) == len(example.weights):
        raise DataError(
            f"problem {example.problem_id}: {len(encoded.positions)} positions for "
            f"{len(example.targets)} targets and {len(example.weights)} weights"
        )
    if any(t is not None and not 0 <= t <= 1 for t in example.targets):
        raise DataError(
            f"problem {example.problem_id}: targets {example.targets}: must lie in [0, 1]"
        )
    if not all(0 <= weight < inf for weight in example.weights):
        raise DataError(
            f"problem {example.problem_id}: weights {example.weights}: must be finite and >= 0"
        )
    rising = (encoded.num_prompt - 1, *encoded.positions, len(encoded.ids))
    if any(b <= a for a, b in pairwise(rising)):
        raise DataError(f"problem {example.problem_id}: positions {encoded.positions} do not rise")
    if step_id is None:
        return
    places = tuple(i for i, token in enumerate(encoded.ids) if token == step_id)
    inside = tuple(i for i in places if i >= encoded.num_prompt)
    if inside != encoded.positions:
        raise DataError(
            f"problem {example.problem_id}: step tokens at {inside}, labels at {encoded.positions}"
        )


def _show(number: int, example: Example, decode: Callable[[Sequence[int]], str]) -> str:
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
