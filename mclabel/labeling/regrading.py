"""Labels from rollouts on record, graded again: no engine is needed.

The estimator of the run is asked again, and given the recorded rollouts with their new verdicts:
with the same verdicts it goes the same way, and gives the same labels. With others it may want
rollouts that were not sampled. Then it judges with what there is, and the rows count how many were
missing. What it does not want any more is left out, so that counts remain those of its rule; the
posterior alone takes everything, since what is evidence to it does not depend on why it was drawn.

Two things stay what they were: the priors of `posterior`, which the run had fitted on the verdicts
of then, and the verdicts on solutions that were sampled and not kept (`solutions.balance`), whose
texts are not on record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mclabel.answers.golds import Gold
from mclabel.checkers import Grade, GradeItem
from mclabel.core.records import Counts, LabeledSolution, Outcome, Problem, Rollout, Solution
from mclabel.core.stats.values import TruncatedPolicy
from mclabel.labeling.estimators import (
    EstimatorSettings,
    ProblemEstimator,
    ProblemPaths,
    answer_class,
    begin_estimator,
)
from mclabel.labeling.grading import Commitments, Graded, grade_recorded
from mclabel.labeling.labeled import (
    Sampling,
    completers_of,
    labeled_solutions,
    selection_probabilities,
)
from mclabel.labeling.prefixes import PrefixTable
from mclabel.labeling.rollouts import EstimatorRun, replay

MAX_GRADED = 512
"""Rollouts that are graded at a time: each with its whole prefix, which in memory is put together
for these alone."""


@dataclass(frozen=True, kw_only=True)
class Regraded:
    """A block's labels and the rollouts that they rest on."""

    labeled: list[LabeledSolution]
    rollouts: list[Rollout]
    num_rollouts: int
    """On record; those that no label rests on any more included."""
    num_changed: int
    """Number of these whose outcome changed."""
    num_missing: int
    """Rollouts wanted and not there."""


def regrade_block(
    rows: Sequence[LabeledSolution],
    rollouts: Sequence[Rollout],
    *,
    settings: EstimatorSettings,
    golds: Mapping[str, Gold],
    read_knowledge: Callable[[str], Any],
    grade: Callable[[Sequence[GradeItem]], Sequence[Grade]],
    commit: Callable[[Problem, Sequence[Solution]], Sequence[Commitments]],
) -> Regraded:
    """Grade the solutions and rollouts of whole problems again, and judge them again.

    Args:
        rows: labelled solutions, those of a problem next to each other.
        rollouts: that their labels rest on.
        settings: settings of the estimator that asked for the rollouts.
        golds: by problem id, in place of those on record.
        read_knowledge: what the estimator had learned over the run, by its id.
        grade: grade of the checker.
        commit: gives the answers on the way of a problem's solutions, as the checker grades them.
    """
    problems = {row.problem.id: _with_gold(row.problem, golds.get(row.problem.id)) for row in rows}
    by_problem: dict[str, list[LabeledSolution]] = {name: [] for name in problems}
    for row, solution in zip(rows, _solutions(rows, problems, grade), strict=True):
        by_problem[row.problem.id].append(replace(row, solution=solution))
    tables = {name: _table(problems[name], mine, commit) for name, mine in by_problem.items()}
    recorded: dict[str, dict[tuple[str, str, int], Rollout]] = {name: {} for name in problems}
    graded = _rollouts(rollouts, problems, tables, grade)
    for rollout in graded:
        key = rollout.prefix_id, rollout.completer, rollout.index
        recorded[rollout.problem_id][key] = rollout
    before = {row.solution.id: row.solution.outcome for row in rows}
    labeled: list[LabeledSolution] = []
    used: list[Rollout] = []
    num_missing = 0
    for name, mine in by_problem.items():
        again, theirs, missing = _judge(
            problems[name],
            mine,
            tables[name],
            recorded[name],
            partial(begin_estimator, settings),
            read_knowledge,
            before,
            settings.truncated,
        )
        labeled += again
        used += theirs
        num_missing += missing
    return Regraded(
        labeled=labeled,
        rollouts=used,
        num_rollouts=len(rollouts),
        num_changed=sum(a.outcome is not b.outcome for a, b in zip(rollouts, graded, strict=True)),
        num_missing=num_missing,
    )


def _table(
    problem: Problem,
    rows: Sequence[LabeledSolution],
    commit: Callable[[Problem, Sequence[Solution]], Sequence[Commitments]],
) -> PrefixTable:
    solutions = [row.solution for row in rows if row.solution.steps]
    return PrefixTable(
        problem,
        solutions,
        free_outcomes=not rows[0].chosen_by_outcome,
        commitments=commit(problem, solutions),
        completers=[completer.name for completer in completers_of(rows[0])],
    )


def _solutions(
    rows: Sequence[LabeledSolution],
    problems: Mapping[str, Problem],
    grade: Callable[[Sequence[GradeItem]], Sequence[Grade]],
) -> list[Solution]:
    solutions = [row.solution for row in rows]
    grades = grade_recorded(
        [(problems[s.problem_id], s.text, s.finish_reason) for s in solutions], grade
    )
    return [
        replace(solution, prediction=now.prediction, outcome=now.outcome)
        for solution, now in zip(solutions, grades, strict=True)
    ]


def _rollouts(
    rollouts: Sequence[Rollout],
    problems: Mapping[str, Problem],
    tables: Mapping[str, PrefixTable],
    grade: Callable[[Sequence[GradeItem]], Sequence[Grade]],
) -> list[Rollout]:
    prefixes = {p.id: p for table in tables.values() for p in table.prefixes}
    graded: list[Graded] = []
    for start in range(0, len(rollouts), MAX_GRADED):
        part = rollouts[start : start + MAX_GRADED]
        texts = {name: prefixes[name].text for name in {rollout.prefix_id for rollout in part}}
        graded += grade_recorded(
            [(problems[r.problem_id], texts[r.prefix_id] + r.text, r.finish_reason) for r in part],
            grade,
        )
    return [
        rollout
        if rollout.finish_reason == "failed"  # there is nothing to grade, and the reason stands
        else replace(rollout, prediction=now.prediction, outcome=now.outcome, reason=now.reason)
        for rollout, now in zip(rollouts, graded, strict=True)
    ]


def _judge(
    problem: Problem,
    rows: Sequence[LabeledSolution],
    table: PrefixTable,
    recorded: dict[tuple[str, str, int], Rollout],
    begin: Callable[..., ProblemEstimator],
    read_knowledge: Callable[[str], Any],
    before: Mapping[str, Outcome],
    truncated: TruncatedPolicy,
) -> tuple[list[LabeledSolution], list[Rollout], int]:
    first = rows[0]
    completers = completers_of(first)
    paths = ProblemPaths(
        paths=table.paths,
        answer_class=answer_class(problem),
        completers=completers,
    )
    estimator = begin(
        paths,
        knowledge=None if first.priors is None else read_knowledge(first.priors),
        min_gain=first.min_gain,
    )
    run = EstimatorRun(estimator, table, None)
    missing = replay(run, recorded)
    judgements = run.judge()
    solutions = [row.solution for row in rows]
    labeled = labeled_solutions(
        problem,
        first.prompt_ids,
        solutions,
        table,
        judgements,
        sampling=_sampling(rows, solutions, before),
        completers=completers,
        values_of=first.values_of,
        priors=first.priors,
        min_gain=first.min_gain,
        truncated=truncated,
        num_missing=missing,
    )
    return labeled, run.rollouts, missing


def _sampling(
    rows: Sequence[LabeledSolution], solutions: Sequence[Solution], before: Mapping[str, Outcome]
) -> Sampling:
    """Counts of a problem's samples, with new verdicts on those that are on record."""
    row = rows[0]
    siblings, num_right = row.siblings, row.num_sampled_right
    observed = siblings.num_rollouts  # the first ones drawn
    for solution in solutions:
        if solution.origin == "given":
            continue
        then, now = before[solution.id], solution.outcome
        if solution.sample_index < observed:
            siblings = _moved(siblings, then, now)
        num_right += (now is Outcome.RIGHT) - (then is Outcome.RIGHT)
    return Sampling(
        siblings=siblings,
        num_sampled=row.num_sampled,
        num_sampled_right=num_right,
        chosen_by_outcome=row.chosen_by_outcome,
        probabilities=selection_probabilities(rows),
    )


def _moved(counts: Counts, then: Outcome, now: Outcome) -> Counts:
    """Counts in which one rollout of outcome `then` has outcome `now`."""
    of_then = f"num_{then.value}"
    return replace(counts, **{of_then: getattr(counts, of_then) - 1}).plus(now)


def _with_gold(problem: Problem, gold: Gold | None) -> Problem:
    if gold is None:
        return problem
    return replace(problem, answer=gold.answer, answer_is_json=gold.is_json)
