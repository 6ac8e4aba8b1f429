"""Labelled solutions as training examples: encoded, with a target for every step that has one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from mclabel.errors import DataError
from mclabel.prm.encode import EncodedSolution, StepEncoder
from mclabel.records import LabeledSolution, Outcome

Target = Literal["hard", "soft", "outcome"]
"""`hard`: 1 where the policy still recovers, 0 where not (Math-Shepherd, arXiv 2312.08935).
`soft`: the estimated value, or the expected one where the rule that stopped the rollouts leaves no
unbiased estimate (`posterior`). `outcome`: the last step alone, 1 for a right answer; what an
outcome reward model (ORM) is trained on."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """One solution to train on or to validate with."""

    problem_id: str
    encoded: EncodedSolution
    targets: tuple[float | None, ...]
    """One per step, in [0, 1]; None where there is no label."""
    right: bool
    """The solution's answer is right."""


@dataclass(frozen=True, kw_only=True)
class Examples:
    """The examples of a run, split by problem."""

    train: list[Example]
    validation: list[Example]
    num_unlabeled: int
    """Solutions without any target."""
    num_refused: int
    """Solutions that cannot be encoded."""
    first_refused: str | None
    """Why the first of them cannot."""


def make_examples(
    rows: Iterable[LabeledSolution],
    encoder: StepEncoder,
    *,
    target: Target,
    validation: float = 0.1,
) -> Examples:
    """Encode labelled solutions and split them by problem.

    Args:
        rows: labelled solutions.
        encoder: of the scorer that is to be trained.
        target: which view of the labels is learned.
        validation: share of problems kept for validation, by a hash of their text.

    Raises:
        DataError: no example is left to train on.
    """
    train: list[Example] = []
    held: list[Example] = []
    num_unlabeled, refused = 0, list[str]()
    for row in rows:
        targets = step_targets(row, target)
        if all(t is None for t in targets):
            num_unlabeled += 1
            continue
        try:
            encoded = encoder.labeled(row)
        except DataError as error:
            refused.append(str(error))
            continue
        example = Example(
            problem_id=row.problem.id,
            encoded=encoded,
            targets=targets,
            right=row.solution.outcome is Outcome.RIGHT,
        )
        (held if is_held_out(row.problem.text, validation) else train).append(example)
    if not train:
        why = f", {len(refused)} are refused, the first because {refused[0]}" if refused else ""
        raise DataError(
            f"no labels left to train on: {num_unlabeled} solutions have no {target} label, "
            f"{len(held)} are kept for validation{why}. Label more problems, or choose another "
            "target"
        )
    return Examples(
        train=train,
        validation=held,
        num_unlabeled=num_unlabeled,
        num_refused=len(refused),
        first_refused=refused[0] if refused else None,
    )


def step_targets(row: LabeledSolution, target: Target) -> tuple[float | None, ...]:
    """The target of every step of a solution."""
    if target == "soft":
        return tuple(step.mean if step.value is None else step.value for step in row.steps)
    if target == "hard":
        return tuple(None if step.hard is None else float(step.hard) for step in row.steps)
    known = {Outcome.RIGHT: 1.0, Outcome.WRONG: 0.0}
    return (*[None] * (len(row.steps) - 1), known.get(row.solution.outcome)) if row.steps else ()


def is_held_out(problem_text: str, share: float) -> bool:
    """Whether a problem is kept for validation; equal texts always go together."""
    normalized = " ".join(problem_text.split()).casefold()
    digest = hashlib.sha256(b"validation:" + normalized.encode()).digest()
    return int.from_bytes(digest[:4]) < share * 2**32
