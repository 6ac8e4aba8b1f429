"""Short constructors of labelled solutions for tests of measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from mclabel.core.records import (
    Counts,
    LabeledSolution,
    LabelSource,
    Outcome,
    Problem,
    Solution,
    Step,
    StepLabel,
)


def step(
    hard: bool | None = None,
    value: float | None = None,
    *,
    prefix: str = "",
    source: LabelSource = "fixed",
    counts: Counts | None = None,
    low: float | None = None,
    high: float | None = None,
    mean: float | None = None,
) -> StepLabel:
    """Return a step's label."""
    return StepLabel(
        prefix_id=prefix,
        counts=counts or Counts(),
        source=source,
        hard=hard,
        value=value,
        low=low,
        high=high,
        mean=mean,
    )


def row(
    problem: str,
    steps: Sequence[StepLabel],
    first_error: int | None = None,
    *,
    sample: int = 0,
    outcome: Outcome = Outcome.WRONG,
    texts: Sequence[str] | None = None,
    origin: Literal["sampled", "given"] = "sampled",
    meta: Mapping[str, str] | None = None,
    posterior: tuple[float, ...] | None = None,
    root: Counts | None = None,
) -> LabeledSolution:
    """Return a labelled solution with the id `PROBLEM.SAMPLE`.

    Steps without texts get numbered texts. Steps without hard labels get those that follow from the
    first error.
    """
    lines = [f"{problem} {sample} {i}\n" for i in range(len(steps))] if texts is None else texts
    made = LabeledSolution(
        problem=Problem(id=problem, text=f"Problem {problem}", answer="1", meta=meta or {}),
        solution=Solution(
            id=f"{problem}.{sample}",
            problem_id=problem,
            sample_index=sample,
            text="".join(lines),
            ids=(),
            steps=tuple(Step(text=line, end=i + 1) for i, line in enumerate(lines)),
            finish_reason="stop",
            origin=origin,
            prediction=None,
            outcome=outcome,
        ),
        prompt_ids=(),
        steps=tuple(steps),
        first_error=first_error,
        root=root or Counts(),
        siblings=Counts(),
        posterior=posterior,
    )
    graded = outcome in (Outcome.RIGHT, Outcome.WRONG)
    bare = all(label.hard is None for label in steps)
    return made.with_first_error(first_error) if graded and bare and steps else made
