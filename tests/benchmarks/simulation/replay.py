"""Replay of an estimator on recorded rollouts, such as a pool, instead of an engine.

A pool holds the rollouts of a run labelled with `fixed`, on which other estimators can be replayed.
Rollouts of a prefix are drawn without replacement in a shuffled order. So an estimator sees what an
engine would have given it, unless it wants more rollouts of a prefix than the run made.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from mclabel.core.records import Counts, LabeledSolution, Outcome, Rollout, Solution
from mclabel.core.seeds import prefix_id
from mclabel.data.boundaries import find_newline_ends
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
    classify_gold_answer,
    find_strongest_completer_index,
)
from mclabel.labeling.labeled import get_row_completers
from mclabel.labeling.prefixes import compute_step_factors, corrects_prefix, make_step_key
from mclabel.run.shards.labels import read_labels, read_rollouts
from mclabel.run.shards.store import Store


@dataclass(frozen=True, kw_only=True)
class Case:
    """A problem whose rollouts can be drawn without an engine, and whose truth is known."""

    id: str
    paths: tuple[SolutionPath, ...]
    """One path per solution."""
    num_prefixes: int
    """Number of distinct prefixes, including the bare problem."""
    answer_class: str
    """Kind of the problem's gold answer: a result of
    `mclabel.labeling.estimators.classify_gold_answer`."""
    truth: tuple[int | None, ...]
    """True first error of each solution, a 0-based step index; None if the solution has no error.
    """
    draw: Callable[[Probe, int], RecordedRollout]
    """Function that draws a rollout of a completer from a prefix: `draw(probe, index)`."""
    values: tuple[float, ...] = ()
    """True value of each prefix under the strongest completer; empty if the values are unknown."""
    group: str = ""
    """Name of the group in which the case is reported, such as an answer type or a profile."""
    completers: tuple[Completer, ...] = (Completer(),)
    """Models that can sample rollouts."""

    @property
    def problem(self) -> ProblemPaths:
        """The problem as an estimator receives it."""
        return ProblemPaths(
            paths=self.paths, answer_class=self.answer_class, completers=self.completers
        )


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Labels and costs of an estimator on one case."""

    judgements: list[Judgement]
    """One judgement per solution."""
    counts: list[list[Counts]]
    """Outcome counts of the rollouts: a list for each completer, with one entry per prefix."""
    costs: list[float]
    """Cost of a token of each completer."""
    num_decisions: int
    """Number of calls of `wanted` that requested a rollout."""

    @property
    def num_tokens(self) -> int:
        """Tokens of all rollouts."""
        return sum(count.num_tokens for prefix_counts in self.counts for count in prefix_counts)

    @property
    def cost(self) -> float:
        """Cost of all rollouts: their tokens times the cost of their completer."""
        tokens = [sum(count.num_tokens for count in prefix_counts) for prefix_counts in self.counts]
        return sum(a * b for a, b in zip(tokens, self.costs, strict=True))

    @property
    def num_rollouts(self) -> int:
        """Number of all rollouts."""
        return sum(count.num_rollouts for prefix_counts in self.counts for count in prefix_counts)


def replay(estimator: Estimator | ProblemEstimator, case: Case) -> Replay:
    """Draw the rollouts that the estimator wants until it wants no more.

    Raises:
        ComponentError: the estimator breaks the rules of the protocol.
    """
    game = Game(estimator, case)
    while game.move():
        pass
    return game.end()


class Game:
    """One estimator on one case, with its rollouts drawn so far."""

    def __init__(self, estimator: Estimator | ProblemEstimator, case: Case) -> None:
        """Begin with a case.

        Args:
            estimator: estimator of the case, without any rollouts so far.
            case: case to draw rollouts from.
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
            ComponentError: the estimator wants a missing prefix, or endlessly many rollouts.
        """
        wanted = self.checked.wanted(self.case.num_prefixes)
        for probe in wanted:
            num_drawn = self._counts[probe.completer][probe.prefix].num_rollouts
            self.take(self.case.draw(probe, num_drawn))
        self._num_decisions += bool(wanted)
        return bool(wanted)

    def take(self, rollout: RecordedRollout) -> None:
        """Record a rollout that the estimator wanted."""
        prefix_counts = self._counts[rollout.completer]
        prefix_counts[rollout.prefix] = prefix_counts[rollout.prefix].plus(
            rollout.outcome, rollout.num_tokens
        )
        self.checked.record(rollout)

    @property
    def num_recorded(self) -> int:
        """Number of recorded rollouts."""
        return sum(count.num_rollouts for prefix_counts in self._counts for count in prefix_counts)

    def end(self) -> Replay:
        """Let the estimator label the solutions.

        Raises:
            ComponentError: the estimator does not give one label per step.
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
    key: Callable[[str], str] = make_step_key,
    group: str = "answer_type",
    modulus: int | None = None,
) -> list[Case]:
    """Read the cases of a run, in the order of problem ids.

    Args:
        store: run labelled with `fixed` and `root_rollouts`, with its rollouts kept. If it has
            several completers, each of them can be sampled.
        truth: function that returns a solution's true first error.
        seed: random seed of the order in which rollouts are drawn.
        key: function that returns a step's key, by which steps are compared.
        group: metadata field of the problems by which cases are grouped in reports.
        modulus: if given, a whole number also counts as right if it differs from the gold by a
            multiple of this number. So many wrong solutions have right answers by luck.

    Returns:
        Cases whose values are the shares of the run's own rollouts, of the strongest completer.
    """
    rows: dict[str, list[LabeledSolution]] = defaultdict(list)
    for row in read_labels(store):
        outcome = _regrade_outcome(row.solution, row.problem.answer, modulus)
        rows[row.problem.id].append(replace(row, solution=replace(row.solution, outcome=outcome)))
    rollouts: dict[tuple[str, str], list[Rollout]] = defaultdict(list)
    for rollout in read_rollouts(store):
        gold = rows[rollout.problem_id][0].problem.answer if rollout.problem_id in rows else ""
        rollout = replace(rollout, outcome=_regrade_outcome(rollout, gold, modulus))
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
    index_of: dict[str, int] = {"": ROOT}  # prefix index by text
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
                step_factors=compute_step_factors(
                    problem.text, [s.text for s in row.solution.steps]
                ),
                commitments=tuple(step.committed for step in row.steps),
            )
        )
    texts = {index: text for text, index in index_of.items()}
    completers = tuple(get_row_completers(rows[0]))
    drawn: list[list[list[RecordedRollout]]] = []
    for number, completer in enumerate(completers):
        completer_draws = []
        for index, name in enumerate(ids):
            recorded = [
                _make_recorded_rollout(rollout, index, texts[index], index_of, key, number)
                for rollout in rollouts.get((completer.name, name), [])
            ]
            random.Random(f"{seed}:{name}").shuffle(recorded)
            completer_draws.append(recorded)
        drawn.append(completer_draws)
    return Case(
        id=problem.id,
        paths=tuple(paths),
        num_prefixes=len(ids),
        answer_class=classify_gold_answer(problem),
        truth=tuple(truth(row) for row in rows),
        draw=partial(_get_rollout, drawn),
        values=tuple(
            _share(recorded) for recorded in drawn[find_strongest_completer_index(completers)]
        ),
        completers=completers,
        group=problem.meta.get(group, ""),
    )


def _regrade_outcome(answered: Solution | Rollout, gold: str, modulus: int | None) -> Outcome:
    """Grade a wrong whole number as right if it equals the gold modulo `modulus`."""
    prediction = answered.prediction
    if modulus and answered.outcome is Outcome.WRONG and prediction is not None:
        try:
            is_multiple = (int(prediction) - int(gold)) % modulus == 0
        except ValueError:
            return answered.outcome
        return Outcome.RIGHT if is_multiple else answered.outcome
    return answered.outcome


def _get_rollout(
    drawn: list[list[list[RecordedRollout]]], probe: Probe, index: int
) -> RecordedRollout:
    return drawn[probe.completer][probe.prefix][index]


def _make_recorded_rollout(
    rollout: Rollout,
    index: int,
    prefix: str,
    index_of: dict[str, int],
    key: Callable[[str], str],
    completer: int,
) -> RecordedRollout:
    ends = find_newline_ends(rollout.text)
    path: list[int] = []
    for end in ends[:-1]:
        known_prefix = index_of.get(prefix + rollout.text[:end])
        if known_prefix is None:
            break
        path.append(known_prefix)
    starts = [0, *ends[:-1]] if ends else []
    return RecordedRollout(
        prefix=index,
        outcome=rollout.outcome,
        num_tokens=rollout.num_tokens,
        path=tuple(path),
        step_keys=tuple(key(rollout.text[a:b]) for a, b in zip(starts, ends, strict=True)),
        completer=completer,
        repairs=rollout.outcome is Outcome.RIGHT and corrects_prefix(rollout.text, prefix),
    )


def _share(rollouts: Iterable[RecordedRollout]) -> float:
    graded = [rollout.outcome for rollout in rollouts if rollout.outcome is not Outcome.UNGRADED]
    return graded.count(Outcome.RIGHT) / len(graded) if graded else float("nan")
