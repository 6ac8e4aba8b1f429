"""Make training examples from labelled solutions: encode them and derive the steps' targets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from mclabel.core.errors import DataError
from mclabel.core.records import LabeledSolution, Outcome
from mclabel.core.settings import MAX_TOTAL, OPERATIONAL, Named, Settings
from mclabel.data.leaks import normalize_for_leaks, read_leak_keys
from mclabel.prm.examples.encode import Example, PackedExamples, StepEncoder, TooLongError
from mclabel.prm.examples.targets import (
    compute_step_targets,
    compute_step_weights,
)

_RIGHT = {
    Outcome.RIGHT: True,
    Outcome.WRONG: False,
    Outcome.TRUNCATED: False,
    Outcome.UNGRADED: None,
}


class ExampleSettings(Settings):
    """Settings that select the labelled solutions to train on, and their targets and weights."""

    target: Annotated[str, Named("targets")] = "hard"
    """Target of each step: `hard`, `soft` (the estimated value), `posterior`, `advantage`,
    `neutral`, `states`, `outcome`, `outcome_steps`, `exact` or `module:function`
    (docs/training.md)."""
    weights: Annotated[str, Named("weights")] = "equal"
    """Weight of each step in the loss: `equal`, `rollouts` (proportional to the number of
    rollouts), `interval` (1 minus the width of the label's interval) or `module:function`."""
    too_long: Literal["drop", "cut"] = "drop"
    """Treatment of solutions longer than `max_tokens`: `drop` leaves the solution out, `cut` keeps
    the first steps that fit."""
    limit: int | None = Field(None, ge=1, le=MAX_TOTAL)
    """Maximum number of solutions to train on, in the order of the labels."""
    validation: float = Field(0.1, ge=0, lt=1)
    """Fraction of the problems held out for validation."""
    evaluation: Annotated[list[str], OPERATIONAL] = Field([])
    """Evaluation sets: output folders of `mclabel label`, or files with a column `problem`. Their
    problems are excluded from training."""

    strict: Annotated[bool, OPERATIONAL] = False
    """True to stop at the first unusable solution or row instead of leaving it out."""


@dataclass(kw_only=True)
class Examples:
    """The examples of a training run, split by problem into training and validation sets."""

    train: PackedExamples = field(default_factory=PackedExamples)
    """Training examples."""
    validation: PackedExamples = field(default_factory=PackedExamples)
    """Validation examples."""
    num_unlabeled: int = 0
    """Number of solutions left out because no step has a target."""
    num_not_kept: int = 0
    """Number of solutions left out because `mclabel combine` marked them as not to be used, since
    rollouts and judges disagree."""
    num_leaked: int = 0
    """Number of solutions left out because their problems are in an evaluation set."""
    num_too_long: int = 0
    """Number of solutions left out because they are too long."""
    num_cut: int = 0
    """Number of solutions of which only the first steps are kept."""
    num_refused: int = 0
    """Number of solutions left out because they cannot be encoded."""
    first_refused: str | None = None
    """Message on the first solution that is too long or cannot be encoded; None if none is."""
    num_unread: int = 0
    """Number of rows of evaluation sets without a problem."""


def make_examples(
    rows: Iterable[LabeledSolution],
    encoder: StepEncoder,
    settings: ExampleSettings,
) -> Examples:
    """Encode labelled solutions and split them by problem. Rows are read once, as a stream.

    Args:
        rows: labelled solutions.
        encoder: encoder of the scorer to be trained.
        settings: settings that select solutions, targets and weights.

    Raises:
        DataError: no example is left to train on, or an evaluation set cannot be read. With
            `settings.strict`, also if a solution or a row of an evaluation set cannot be used.
    """
    examples = Examples()

    def count_unread(why: str) -> None:
        if settings.strict:
            raise DataError(f"evaluation: {why}")
        examples.num_unread += 1

    leaks = read_leak_keys(settings.evaluation, count_unread)
    for row in rows:
        if settings.limit is not None and len(examples.train) == settings.limit:
            break
        if leaks and normalize_for_leaks(row.problem.text) in leaks:
            examples.num_leaked += 1
            continue
        if not row.is_kept:
            examples.num_not_kept += 1
            continue
        targets = compute_step_targets(row, settings.target)
        if all(t is None for t in targets):
            examples.num_unlabeled += 1
            continue
        try:
            encoded = encoder.encode_labelled(row, truncate_if_too_long=settings.too_long == "cut")
        except DataError as error:
            if settings.strict:
                raise
            examples.num_too_long += isinstance(error, TooLongError)
            examples.num_refused += not isinstance(error, TooLongError)
            examples.first_refused = examples.first_refused or str(error)
            continue
        num_kept = len(encoded.positions)
        if all(t is None for t in targets[:num_kept]):
            examples.num_too_long += 1
            continue
        examples.num_cut += num_kept < len(targets)
        held_out = is_held_out(row.problem.text, settings.validation)
        (examples.validation if held_out else examples.train).append(
            Example(
                problem_id=row.problem.id,
                encoded=encoded,
                targets=targets[:num_kept],
                weights=compute_step_weights(row, settings.weights)[:num_kept],
                is_right=_RIGHT[row.solution.outcome],
            )
        )
    if not examples.train:
        raise DataError(_format_no_examples_message(examples, settings.target))
    return examples


def _format_no_examples_message(examples: Examples, target: str) -> str:
    left_out = examples.num_refused + examples.num_too_long
    why = (
        f", {left_out} are refused, the first because {examples.first_refused}" if left_out else ""
    )
    leaked = f", {examples.num_leaked} are in an evaluation set" if examples.num_leaked else ""
    leaked += (
        f", a consensus does not keep {examples.num_not_kept}" if examples.num_not_kept else ""
    )
    return (
        f"no labels left to train on: {examples.num_unlabeled} solutions have no {target} label, "
        f"{len(examples.validation)} are kept for validation{leaked}{why}. Label more problems, or "
        "choose another target"
    )


def is_held_out(problem_text: str, share: float) -> bool:
    """Return whether a problem is held out for validation.

    The decision depends only on a hash of the problem's text, without case and whitespace.

    Args:
        problem_text: text of the problem.
        share: fraction of all problems to hold out, in [0, 1).
    """
    normalized = " ".join(problem_text.split()).casefold()
    digest = hashlib.sha256(b"validation:" + normalized.encode()).digest()
    return int.from_bytes(digest[:4]) < share * 2**32
