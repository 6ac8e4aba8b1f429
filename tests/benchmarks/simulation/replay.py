"""Drives an estimator with outcomes that are at hand, such as a pool of rollouts, in place of an
engine.

A pool holds the rollouts of a run labelled with `fixed`, to replay other estimators against.
Rollouts of a prefix are drawn without replacement in a shuffled order, so an estimator that asks
for no more of each prefix than the run made sees what an engine would have given it.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from mclabel.core.records import Counts, LabeledSolution, Outcome, Rollout
from mclabel.core.seeds import prefix_id
from mclabel.data.boundaries import newline_ends
from mclabel.labeling.estimators import (
    ROOT,
    CheckedEstimator,
    Completer,
    Estimator,
    Judgement,
    Probe,
    ProblemEstimator,
    ProblemPaths,
    RecordedRollout,
    SolutionPath,
    answer_class,
    strongest,
)
from mclabel.labeling.labeled import completers_of
from mclabel.labeling.prefixes import contradicts_prefix, step_key
from mclabel.run.shards.labels import read_labels, read_rollouts
from mclabel.run.shards.store import Store


@dataclass(frozen=True, kw_only=True)
class Case:
    """A problem whose rollouts can be drawn without an engine, and whose truth is known."""

    id: str
    paths: tuple[SolutionPath, ...]
    """One path per solution."""
    num_prefixes: int
    """Number of distinct prefixes, the problem alone included."""
    answer_class: str
    """Kind of the problem's gold answer: a result of `mclabel.labeling.estimators.answer_class`."""
    truth: tuple[int | None, ...]
    """True first error of each solution; None where it has none."""
    draw: Callable[[Probe, int], RecordedRollout]
    """Draws one of a completer's rollouts from a prefix: `draw(probe, index)`."""
    values: tuple[float, ...] = ()
    """True value of each prefix, of the strongest completer; empty where they are unknown."""
    group: str = ""
    """Group of cases that this one is reported with: an answer type, a profile."""
    completers: tuple[Completer, ...] = (Completer(),)
    """The models that can roll out."""

    @property
    def problem(self) -> ProblemPaths:
        """The problem as an estimator receives it."""
        return ProblemPaths(
            paths=self.paths, answer_class=self.answer_class, completers=self.completers
        )


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What an estimator did with a case."""

    judgements: list[Judgement]
    """One judgement per solution."""
    counts: list[list[Counts]]
    """Outcomes of the rollouts, of each completer one per prefix."""
    costs: list[float]
    """Of each completer's tokens."""
    num_decisions: int
    """Number of calls of `wanted` that asked for something."""

    @property
    def num_tokens(self) -> int:
        """Tokens of all rollouts."""
        return sum(count.num_tokens for own in self.counts for count in own)

    @property
    def cost(self) -> float:
        """Tokens of all rollouts, those of each completer at its cost."""
        tokens = [sum(count.num_tokens for count in own) for own in self.counts]
        return sum(a * b for a, b in zip(tokens, self.costs, strict=True))

    @property
    def num_rollouts(self) -> int:
        """Number of all rollouts."""
        return sum(count.num_rollouts for own in self.counts for count in own)


def replay(estimator: Estimator | ProblemEstimator, case: Case) -> Replay:
    """Draw what the estimator wants until it wants no more.

    Raises:
        ComponentError: the estimator breaks the rules of the protocol.
    """
    game = Game(estimator, case)
    while game.move():
        pass
    return game.end()


class Game:
    """One estimator and the rollouts it has drawn."""

    def __init__(self, estimator: Estimator | ProblemEstimator, case: Case) -> None:
        """Begin with a case.

        Args:
            estimator: of the case, without any rollouts so far.
            case: to draw from.
        """
        self.case = case
        self.checked = (
            estimator
            if isinstance(estimator, ProblemEstimator)
            else CheckedEstimator(estimator, case.problem)
        )
        self._counts = [[Counts()] * case.num_prefixes for _ in case.completers]
        self._num_decisions = 0

    def move(self) -> bool:
        """Make one decision and draw its rollouts; return False if nothing is wanted.

        Raises:
            ComponentError: the estimator asks for a prefix that is not there, or without end.
        """
        wanted = self.checked.wanted(self.case.num_prefixes)
        for probe in wanted:
            num_drawn = self._counts[probe.completer][probe.prefix].num_rollouts
            self.take(self.case.draw(probe, num_drawn))
        self._num_decisions += bool(wanted)
        return bool(wanted)

    def take(self, rollout: RecordedRollout) -> None:
        """Record a rollout that the estimator has asked for."""
        own = self._counts[rollout.completer]
        own[rollout.prefix] = own[rollout.prefix].plus(rollout.outcome, rollout.num_tokens)
        self.checked.record(rollout)

    @property
    def num_recorded(self) -> int:
        """Number of rollouts that were recorded."""
        return sum(count.num_rollouts for own in self._counts for count in own)

    def end(self) -> Replay:
        """Let the estimator label the solutions.

        Raises:
            ComponentError: it does not give one label per step.
        """
        return Replay(
            judgements=self.checked.judge(self._counts),
            counts=self._counts,
            costs=[completer.cost for completer in self.case.completers],
            num_decisions=self._num_decisions,
        )


Truth = Callable[[LabeledSolution], int | None]


def read_pool(
    store: Store,
    truth: Truth,
    *,
    seed: int = 0,
    key: Callable[[str], str] = step_key,
    group: str = "answer_type",
) -> list[Case]:
    """Read the cases of a run, in the order of problem ids.

    Args:
        store: a run labelled with `fixed` and `root_rollouts`, rollouts kept; with several
            completers, each of them can be asked.
        truth: a solution's true first error.
        seed: of the order in which rollouts are drawn.
        key: content of a step as a key, by which steps are compared.
        group: field of the problems' metadata that cases are reported by.

    Returns:
        Cases whose values are the shares of the run's own rollouts, of the strongest completer.
    """
    rows: dict[str, list[LabeledSolution]] = defaultdict(list)
    for row in read_labels(store):
        rows[row.problem.id].append(row)
    rollouts: dict[tuple[str, str], list[Rollout]] = defaultdict(list)
    for rollout in read_rollouts(store):
        rollouts[rollout.completer, rollout.prefix_id].append(rollout)
    return [
        _case(
            sorted(rows[name], key=lambda r: r.solution.sample_index),
            rollouts,
            truth,
            seed,
            key,
            group,
        )
        for name in sorted(rows)
    ]


def _case(
    rows: Sequence[LabeledSolution],
    rollouts: dict[tuple[str, str], list[Rollout]],
    truth: Truth,
    seed: int,
    key: Callable[[str], str],
    group: str,
) -> Case:
    problem = rows[0].problem
    rows = [row for row in rows if row.steps]
    index_of: dict[str, int] = {"": ROOT}  # by text
    ids: list[str] = [prefix_id(problem.id, ())]
    paths = []
    for row in rows:
        text, path = "", []
        for step, label in zip(row.solution.steps[:-1], row.steps, strict=False):
            text += step.text
            if text not in index_of:
                index_of[text] = len(ids)
                ids.append(label.prefix_id)
            path.append(index_of[text])
        ends = [0, *(step.end for step in row.solution.steps)]
        paths.append(
            SolutionPath(
                prefixes=tuple(path),
                outcome=row.solution.outcome,
                sampled=row.solution.origin == "sampled" and not row.chosen_by_outcome,
                step_tokens=tuple(b - a for a, b in pairwise(ends)),
                step_keys=tuple(key(step.text) for step in row.solution.steps),
                commitments=tuple(step.committed for step in row.steps),
            )
        )
    texts = {index: text for text, index in index_of.items()}
    completers = tuple(completers_of(rows[0]))
    drawn: list[list[list[RecordedRollout]]] = []
    for number, completer in enumerate(completers):
        own = []
        for index, name in enumerate(ids):
            recorded = [
                _recorded(rollout, index, texts[index], index_of, key, number)
                for rollout in rollouts.get((completer.name, name), [])
            ]
            random.Random(f"{seed}:{name}").shuffle(recorded)
            own.append(recorded)
        drawn.append(own)
    return Case(
        id=problem.id,
        paths=tuple(paths),
        num_prefixes=len(ids),
        answer_class=answer_class(problem),
        truth=tuple(truth(row) for row in rows),
        draw=partial(_draw, drawn),
        values=tuple(_share(recorded) for recorded in drawn[strongest(completers)]),
        completers=completers,
        group=problem.meta.get(group, ""),
    )


def _draw(drawn: list[list[list[RecordedRollout]]], probe: Probe, index: int) -> RecordedRollout:
    return drawn[probe.completer][probe.prefix][index]


def _recorded(
    rollout: Rollout,
    index: int,
    prefix: str,
    index_of: dict[str, int],
    key: Callable[[str], str],
    completer: int,
) -> RecordedRollout:
    ends = newline_ends(rollout.text)
    path: list[int] = []
    for end in ends[:-1]:
        known = index_of.get(prefix + rollout.text[:end])
        if known is None:
            break
        path.append(known)
    starts = [0, *ends[:-1]] if ends else []
    return RecordedRollout(
        prefix=index,
        outcome=rollout.outcome,
        num_tokens=rollout.num_tokens,
        path=tuple(path),
        step_keys=tuple(key(rollout.text[a:b]) for a, b in zip(starts, ends, strict=True)),
        completer=completer,
        repairs=rollout.outcome is Outcome.RIGHT and contradicts_prefix(rollout.text, prefix),
    )


def _share(rollouts: Iterable[RecordedRollout]) -> float:
    graded = [one.outcome for one in rollouts if one.outcome is not Outcome.UNGRADED]
    return graded.count(Outcome.RIGHT) / len(graded) if graded else float("nan")
