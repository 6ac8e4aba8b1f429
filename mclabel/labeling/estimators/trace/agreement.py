"""Evidence on a step itself: the way that the solution takes, and whether others take it, too.

A solution that corrects itself goes over its steps again. So a step takes one of four ways: it is
the first of its content; it goes over *again* what followed the step before it earlier; it goes
*otherwise* than then, which is how a repair looks, and a slip in a check; or it goes *back* to
something said earlier. Steps are told by their content (`mclabel.labeling.prefixes`). One with
fewer than two numbers derives nothing: it is not compared, and neither is an answer on the way.

Samples are the other solutions of the problem. A step that goes wrong is one that few of them take,
at a point to which many come; a repair leaves a way that few take for one that many do.
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
WAY = "way"
_HELD_BY = {Outcome.RIGHT: "held by right", Outcome.WRONG: "held by wrong"}
SOURCES = {
    # Of each kind of move: carried, recovered, error, sound.
    WAY: (
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
"""Sources, and the shares of what they show, before anything is fitted.

way: as above. held by right, held by wrong: solutions of this end that hold the step anywhere, and
those that do not, where it is the first of its content. follows: of those that come to the step
before it, how many take it next, where it is the first. turns to: the same where it goes
otherwise; turns from: how many take what it took before. rollouts: of those that come to the step
before it, how many take it next, whatever its content.
"""


def compare_solutions(
    paths: Sequence[SolutionPath], samples: Sequence[SolutionPath]
) -> dict[str, Floats]:
    """Count how solutions agree on their steps, in time linear in these.

    Args:
        paths: the first solution of each chain.
        samples: all solutions of the problem.

    Returns:
        By source, [T, kind, chain]; nothing yet from rollouts.
    """
    width = max((path.num_steps for path in paths), default=1)
    counts = {
        source: np.zeros((width, len(kinds[0]), len(paths))) for source, kinds in SOURCES.items()
    }
    others = _Samples()
    for sample in samples:
        others.add(sample, 1)
    for chain, path in enumerate(paths):
        others.add(path, -1)
        for step, source, kind, count in _seen(path, others):
            counts[source][step, kind, chain] += count
        others.add(path, 1)
    return counts


def leaves_its_way(before: Sequence[str], keys: Sequence[str]) -> bool:
    """Return whether a completion leaves the way of its prefix, which it goes over again.

    Args:
        before: content of the steps that it continues, of those that can be compared.
        keys: content of its own.
    """
    after = dict(pairwise(before))
    derived = [key for key in keys if _derives(key)]
    return any(after.get(last, key) != key and key != before[0] for last, key in pairwise(derived))


class _Samples:
    """Numbers of solutions that hold a step, and that take it after another."""

    def __init__(self) -> None:
        self.ended: Counter[str] = Counter()
        """Their number, by source: `held by right` or `held by wrong`."""
        self.holding: Counter[tuple[str, str]] = Counter()
        """Number that hold a step of this content, by source."""
        self.coming: Counter[str | None] = Counter()
        """Number that come to a step of this content; None is the bare problem."""
        self.taking: Counter[tuple[str | None, str]] = Counter()
        """Number that take the second content right after the first."""

    def add(self, path: SolutionPath, by: int) -> None:
        """Add a solution, or take it out: by 1 or -1. One that was not sampled shows nothing."""
        if not path.sampled:
            return
        keys = [key for _, key in comparable(path)]
        pairs = set(zip([None, *keys], keys, strict=False))
        if (source := _HELD_BY.get(path.outcome)) is not None:
            self.ended[source] += by
            for key in set(keys):
                self.holding[source, key] += by
        for last in {last for last, _ in pairs}:
            self.coming[last] += by
        for pair in pairs:
            self.taking[pair] += by


def _seen(path: SolutionPath, others: _Samples) -> Iterator[tuple[int, str, int, int]]:
    """Yield what is seen of a solution: step, source, what it shows, and how often."""
    held: set[str] = set()
    after: dict[str | None, str] = {}
    last: str | None = None
    begin: str | None = None
    for step, key in comparable(path):
        begin = begin or key
        taken = after.get(last)
        if key in held and (taken is None or key == begin):
            way = BACK
        elif taken is None:
            way = FIRST
        else:
            way = AGAIN if taken == key else OTHERWISE
        yield step, WAY, way, 1
        if key not in held:
            for source, count in others.ended.items():
                yield from _shares(step, source, others.holding[source, key], count)
        come, take = others.coming[last], others.taking[last, key]
        if way == FIRST and last is not None:
            yield from _shares(step, "follows", take, come)
        if way == OTHERWISE and taken is not None:
            yield from _shares(step, "turns to", take, come)
            yield from _shares(step, "turns from", others.taking[last, taken], come)
        held.add(key)
        after[last] = key
        last = key


def _shares(step: int, source: str, count: int, of: int) -> Iterator[tuple[int, str, int, int]]:
    """Yield how many of some solutions do what a step does, and how many do not."""
    yield step, source, 0, count
    yield step, source, 1, of - count


def comparable(path: SolutionPath) -> Iterator[tuple[int, str]]:
    """Yield steps whose content can be compared; the last one is known by its outcome."""
    for step, key in enumerate(path.step_keys[:-1]):
        is_answer = bool(path.commitments) and path.commitments[step] is not None
        if not is_answer and _derives(key):
            yield step, key


def _derives(key: str) -> bool:
    """Return whether a step of this content has two numbers or more."""
    return key.startswith("numbers ") and key.count(" ") > 1


def add_rollout(
    counts: Mapping[str, Floats], path: SolutionPath, chain: int, begin: int, keys: Sequence[str]
) -> None:
    """Add what a rollout shows of a solution's steps, up to the one where it leaves the solution.

    Args:
        counts: counts that `compare_solutions` returned; the rollout is added to them.
        path: the solution.
        chain: its chain.
        begin: number of steps of the prefix that was rolled out.
        keys: content of the rollout's steps.
    """
    for step, (ours, taken) in enumerate(
        zip(path.step_keys[begin:-1], keys, strict=False), start=begin
    ):
        counts["rollouts"][step, int(ours != taken), chain] += 1
        if ours != taken:
            return
