"""Counts repetitions in a solution, and the samples that take the same steps, by steps' content.

A solution that corrects itself repeats some of its steps. So each step is classified by its content
and by the content of the step before it (its predecessor). A step is *first* if its content is new
and no step has followed the predecessor's content in the solution yet. It is *again* if it repeats
the step that followed this content earlier. It is *otherwise* if it differs from that step, as a
repair does, or a slip in a check. And it is *back* if it returns to an earlier step. Content is
compared by the keys of `mclabel.labeling.prefixes`. Two kinds of steps are not compared: steps with
fewer than two numbers, which derive nothing, and steps that state an answer.

Samples are the other solutions of the problem. A wrong step is typically one that few samples take,
after a step that many samples contain. A repair typically replaces a continuation that few samples
take by one that many take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mclabel.core.records import Outcome
from mclabel.labeling.estimators.paths import SolutionPath

Floats = NDArray[np.float64]

FIRST, AGAIN, OTHERWISE, BACK = range(4)
"""Classes of a step, as described in the module's docstring."""
STEP_CLASS = "way"
"""Name of the source of evidence that counts the classes of steps."""
_CONTAINMENT_SOURCES = {Outcome.RIGHT: "held by right", Outcome.WRONG: "held by wrong"}
SOURCES = {
    # One row for each kind of move: carried, recovered, error, sound.
    STEP_CLASS: (
        (0.46, 0.23, 0.16, 0.15),
        (0.1, 0.25, 0.58, 0.07),
        (0.67, 0.04, 0.26, 0.03),
        (0.47, 0.35, 0.09, 0.09),
    ),
    "held by right": ((0.25, 0.75), (0.85, 0.15), (0.4, 0.6), (0.95, 0.05)),
    "held by wrong": ((0.2, 0.8), (0.6, 0.4), (0.4, 0.6), (0.85, 0.15)),
    "follows": ((0.5, 0.5), (0.5, 0.5), (0.4, 0.6), (0.95, 0.05)),
    "turns to": ((0.5, 0.5), (0.8, 0.2), (0.2, 0.8), (0.9, 0.1)),
    "turns from": ((0.4, 0.6), (0.3, 0.7), (0.85, 0.15), (0.9, 0.1)),
    "rollouts": ((0.4, 0.6), (0.4, 0.6), (0.15, 0.85), (0.7, 0.3)),
}
"""Initial mean shares [move, kind] of each source of evidence on steps, before any fit. A move is a
pair of states before and after a step, numbered as in `mclabel.labeling.estimators.trace.chain`.
The kinds of each source are:

- `way`: the class of the step: first, again, otherwise, back.
- `held by right`, `held by wrong`: right (or wrong) samples that contain the step anywhere, and
  those that do not. Counted if the step's content is new in the solution.
- `follows`: samples that take the step right after the step before it, and samples that continue
  differently. Counted if the step is first.
- `turns to`: the kinds of `follows`, counted if the step is otherwise.
- `turns from`: samples that take the solution's earlier continuation of the step before, and
  samples that continue differently. Counted if the step is otherwise.
- `rollouts`: rollouts that take the step after the step before it, and rollouts that continue
  differently. Counted for every step that rollouts reach.
"""


def count_step_agreement(
    paths: Sequence[SolutionPath], samples: Sequence[SolutionPath]
) -> dict[str, Floats]:
    """Count, for each step, the repetitions in its solution and the samples that agree with it, in
    linear time.

    Args:
        paths: the first solution of each chain.
        samples: all solutions of the problem.

    Returns:
        Counts [T, kind, chain] by source, where T is the number of steps of the longest solution.
        Those of `rollouts` are zero; `count_rollout_agreement` fills them.
    """
    width = max((path.num_steps for path in paths), default=1)
    counts = {
        source: np.zeros((width, len(kinds[0]), len(paths))) for source, kinds in SOURCES.items()
    }
    others = _SampleCounts()
    for sample in samples:
        others.add(sample, 1)
    for chain, path in enumerate(paths):
        others.add(path, -1)
        for step, source, kind, count in _iter_step_observations(path, others):
            counts[source][step, kind, chain] += count
        others.add(path, 1)
    return counts


def repeats_then_departs(prefix_keys: Sequence[str], completion_keys: Sequence[str]) -> bool:
    """Return whether a completion repeats a step of its prefix and then continues differently.

    Args:
        prefix_keys: keys of the steps of the prefix that `iter_comparable_steps` yields.
        completion_keys: keys of all steps of the completion.
    """
    after = dict(pairwise(prefix_keys))
    derived = [key for key in completion_keys if _has_several_numbers(key)]
    return any(
        after.get(last, key) != key and key != prefix_keys[0] for last, key in pairwise(derived)
    )


class _SampleCounts:
    """Counts of samples that contain a step, and of samples that take it after another step."""

    def __init__(self) -> None:
        self.num_by_outcome: Counter[str] = Counter()
        """Number of right samples under `held by right`, and of wrong samples under `held by
        wrong`."""
        self.num_containing: Counter[tuple[str, str]] = Counter()
        """Number of samples that contain a step. A key is a pair: the source (`held by right` or
        `held by wrong`) and the step's key."""
        self.num_continuing: Counter[str | None] = Counter()
        """Number of samples that continue after a step, by the step's key; None stands for the
        start of the solution."""
        self.num_taking: Counter[tuple[str | None, str]] = Counter()
        """Number of samples that take one step directly after another, by the pair of their keys in
        this order."""

    def add(self, path: SolutionPath, increment: int) -> None:
        """Add a solution to the counts, or remove it.

        A solution whose `sampled` is false was chosen by its outcome, and is ignored.

        Args:
            path: the solution.
            increment: 1 to add, -1 to remove.
        """
        if not path.sampled:
            return
        keys = [key for _, key in iter_comparable_steps(path)]
        pairs = set(zip([None, *keys], keys, strict=False))
        if (source := _CONTAINMENT_SOURCES.get(path.outcome)) is not None:
            self.num_by_outcome[source] += increment
            for key in set(keys):
                self.num_containing[source, key] += increment
        for last in {last for last, _ in pairs}:
            self.num_continuing[last] += increment
        for pair in pairs:
            self.num_taking[pair] += increment


def _iter_step_observations(
    path: SolutionPath, sample_counts: _SampleCounts
) -> Iterator[tuple[int, str, int, int]]:
    """Yield what is observed on a solution's steps as tuples: step index from 0, name of the
    source, index of the kind (as in `SOURCES`), and count.
    """
    held: set[str] = set()
    after: dict[str | None, str] = {}
    last: str | None = None
    begin: str | None = None
    for step, key in iter_comparable_steps(path):
        begin = begin or key
        taken = after.get(last)
        if key in held and (taken is None or key == begin):
            way = BACK
        elif taken is None:
            way = FIRST
        else:
            way = AGAIN if taken == key else OTHERWISE
        yield step, STEP_CLASS, way, 1
        if key not in held:
            for source, count in sample_counts.num_by_outcome.items():
                yield from _iter_agreement_counts(
                    step, source, sample_counts.num_containing[source, key], count
                )
        come, take = sample_counts.num_continuing[last], sample_counts.num_taking[last, key]
        if way == FIRST and last is not None:
            yield from _iter_agreement_counts(step, "follows", take, come)
        if way == OTHERWISE and taken is not None:
            yield from _iter_agreement_counts(step, "turns to", take, come)
            yield from _iter_agreement_counts(
                step, "turns from", sample_counts.num_taking[last, taken], come
            )
        held.add(key)
        after[last] = key
        last = key


def _iter_agreement_counts(
    step: int, source: str, num_agreeing: int, num_samples: int
) -> Iterator[tuple[int, str, int, int]]:
    """Yield two counts of a source, samples that agree with a step and samples that do not, as
    `_iter_step_observations` does.

    Args:
        step: index of the step.
        source: name of the source.
        num_agreeing: number of samples that agree.
        num_samples: number of all samples.
    """
    yield step, source, 0, num_agreeing
    yield step, source, 1, num_samples - num_agreeing


def iter_comparable_steps(path: SolutionPath) -> Iterator[tuple[int, str]]:
    """Yield index and key of each step whose content is compared.

    The last step is left out, since the outcome determines its label.
    """
    for step, key in enumerate(path.step_keys[:-1]):
        is_answer = bool(path.commitments) and path.commitments[step] is not None
        if not is_answer and _has_several_numbers(key):
            yield step, key


def _has_several_numbers(key: str) -> bool:
    """Return whether a step with this key has two numbers or more."""
    return key.startswith("numbers ") and key.count(" ") > 1


def count_rollout_agreement(
    step_counts: Mapping[str, Floats],
    path: SolutionPath,
    chain: int,
    num_prefix_steps: int,
    completion_keys: Sequence[str],
) -> None:
    """Count, in the source `rollouts`, whether a rollout agrees with a solution's steps.

    Steps are counted up to the first one in which the rollout differs from the solution.

    Args:
        step_counts: counts that `count_step_agreement` returned; they are changed in place.
        path: the solution.
        chain: index of the solution's chain.
        num_prefix_steps: number of steps of the prefix from which the rollout was sampled.
        completion_keys: keys of the rollout's steps.
    """
    for step, (ours, taken) in enumerate(
        zip(path.step_keys[num_prefix_steps:-1], completion_keys, strict=False),
        start=num_prefix_steps,
    ):
        step_counts["rollouts"][step, int(ours != taken), chain] += 1
        if ours != taken:
            return
