"""Labels from recorded rollouts that are graded again; no engine is needed.

The run's estimator is replayed: it requests rollouts, and receives the recorded ones with their new
verdicts. With unchanged verdicts it makes the same requests and gives the same labels. With changed
verdicts it may request rollouts that were never sampled. It then labels without these, and the rows
record how many are missing. Recorded rollouts that it no longer requests are not used, so the
counts still follow its stopping rule. Only the `posterior` estimator receives all recorded
rollouts, because its inference does not depend on why a rollout was sampled.

Two things are not updated. The priors of the `posterior` estimator stay as the run fitted them on
the old verdicts. Solutions that were sampled but not kept (`solutions.balance`) keep their old
verdicts, because their texts are not recorded.
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
    begin_estimator,
    classify_gold_answer,
)
from mclabel.labeling.grading import GradeRecord, IntermediateOutcomes, grade_recorded_completions
from mclabel.labeling.labeled import (
    SamplingFacts,
    build_labeled_solutions,
    compute_selection_probabilities,
    get_row_completers,
)
from mclabel.labeling.prefixes import PrefixTable
from mclabel.labeling.rollouts import EstimatorRun, replay_and_count_missing

MAX_BATCH_ROLLOUTS = 512
"""Maximum number of rollouts that are graded in one batch. Each needs the text of its whole prefix,
and the limit bounds the memory for these texts."""


@dataclass(frozen=True, kw_only=True)
class Regraded:
    """New labels of one block, and the rollouts on which they are based."""

    labeled: list[LabeledSolution]
    rollouts: list[Rollout]
    """Rollouts that the new labels use."""
    num_rollouts: int
    """Number of recorded rollouts, including those that no new label uses."""
    num_changed: int
    """Number of recorded rollouts whose outcome changed."""
    num_missing: int
    """Number of rollouts that the estimator requested but that were not recorded."""


def regrade_block(
    rows: Sequence[LabeledSolution],
    rollouts: Sequence[Rollout],
    *,
    settings: EstimatorSettings,
    golds: Mapping[str, Gold],
    read_knowledge: Callable[[str], Any],
    grade: Callable[[Sequence[GradeItem]], Sequence[Grade]],
    grade_intermediate: Callable[[Problem, Sequence[Solution]], Sequence[IntermediateOutcomes]],
) -> Regraded:
    """Grade all solutions and rollouts of a block's problems again, and label the steps again.

    Args:
        rows: labelled solutions; rows of the same problem are adjacent.
        rollouts: recorded rollouts of the problems.
        settings: settings of the estimator that requested the rollouts.
        golds: corrected gold answers by problem id, which replace the recorded ones.
        read_knowledge: function that returns the fitted parameters with which the estimator
            started, given their id.
        grade: function of the checker that grades a batch.
        grade_intermediate: function that grades the intermediate answers of a problem's solutions.
    """
    problems = {
        row.problem.id: _replace_gold(row.problem, golds.get(row.problem.id)) for row in rows
    }
    by_problem: dict[str, list[LabeledSolution]] = {name: [] for name in problems}
    for row, solution in zip(rows, _regrade_solutions(rows, problems, grade), strict=True):
        by_problem[row.problem.id].append(replace(row, solution=solution))
    tables = {
        name: _make_prefix_table(problems[name], mine, grade_intermediate)
        for name, mine in by_problem.items()
    }
    recorded: dict[str, dict[tuple[str, str, int], Rollout]] = {name: {} for name in problems}
    graded = _regrade_rollouts(rollouts, problems, tables, grade)
    for rollout in graded:
        key = rollout.prefix_id, rollout.completer, rollout.index
        recorded[rollout.problem_id][key] = rollout
    old_outcomes = {row.solution.id: row.solution.outcome for row in rows}
    labeled: list[LabeledSolution] = []
    used: list[Rollout] = []
    num_missing = 0
    for name, mine in by_problem.items():
        again, theirs, missing = _relabel_problem(
            problems[name],
            mine,
            tables[name],
            recorded[name],
            partial(begin_estimator, settings),
            read_knowledge,
            old_outcomes,
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


def _make_prefix_table(
    problem: Problem,
    rows: Sequence[LabeledSolution],
    grade_intermediate: Callable[[Problem, Sequence[Solution]], Sequence[IntermediateOutcomes]],
) -> PrefixTable:
    solutions = [row.solution for row in rows if row.solution.steps]
    return PrefixTable(
        problem,
        solutions,
        kept_regardless_of_outcome=not rows[0].chosen_by_outcome,
        commitments=grade_intermediate(problem, solutions),
        completers=[completer.name for completer in get_row_completers(rows[0])],
    )


def _regrade_solutions(
    rows: Sequence[LabeledSolution],
    problems: Mapping[str, Problem],
    grade: Callable[[Sequence[GradeItem]], Sequence[Grade]],
) -> list[Solution]:
    solutions = [row.solution for row in rows]
    grades = grade_recorded_completions(
        [(problems[s.problem_id], s.text, s.finish_reason) for s in solutions], grade
    )
    return [
        replace(solution, prediction=now.prediction, outcome=now.outcome)
        for solution, now in zip(solutions, grades, strict=True)
    ]


def _regrade_rollouts(
    rollouts: Sequence[Rollout],
    problems: Mapping[str, Problem],
    tables: Mapping[str, PrefixTable],
    grade: Callable[[Sequence[GradeItem]], Sequence[Grade]],
) -> list[Rollout]:
    prefixes = {p.id: p for table in tables.values() for p in table.prefixes}
    graded: list[GradeRecord] = []
    for start in range(0, len(rollouts), MAX_BATCH_ROLLOUTS):
        part = rollouts[start : start + MAX_BATCH_ROLLOUTS]
        texts = {name: prefixes[name].text for name in {rollout.prefix_id for rollout in part}}
        graded += grade_recorded_completions(
            [(problems[r.problem_id], texts[r.prefix_id] + r.text, r.finish_reason) for r in part],
            grade,
        )
    return [
        rollout
        if rollout.finish_reason == "failed"  # nothing was sampled, so the recorded reason stays
        else replace(rollout, prediction=now.prediction, outcome=now.outcome, reason=now.reason)
        for rollout, now in zip(rollouts, graded, strict=True)
    ]


def _relabel_problem(
    problem: Problem,
    rows: Sequence[LabeledSolution],
    table: PrefixTable,
    recorded: dict[tuple[str, str, int], Rollout],
    make_estimator: Callable[..., ProblemEstimator],
    read_knowledge: Callable[[str], Any],
    old_outcomes: Mapping[str, Outcome],
    truncated: TruncatedPolicy,
) -> tuple[list[LabeledSolution], list[Rollout], int]:
    first = rows[0]
    completers = get_row_completers(first)
    paths = ProblemPaths(
        paths=table.paths,
        answer_class=classify_gold_answer(problem),
        completers=completers,
    )
    estimator = make_estimator(
        paths,
        knowledge=None if first.priors is None else read_knowledge(first.priors),
        min_gain=first.min_gain,
    )
    run = EstimatorRun(estimator, table, None)
    missing = replay_and_count_missing(run, recorded)
    judgements = run.judge()
    solutions = [row.solution for row in rows]
    labeled = build_labeled_solutions(
        problem,
        first.prompt_ids,
        solutions,
        table,
        judgements,
        sampling=_update_sampling(rows, solutions, old_outcomes),
        completers=completers,
        values_of=first.values_of,
        priors=first.priors,
        min_gain=first.min_gain,
        truncated=truncated,
        num_missing=missing,
    )
    return labeled, run.rollouts, missing


def _update_sampling(
    rows: Sequence[LabeledSolution],
    solutions: Sequence[Solution],
    old_outcomes: Mapping[str, Outcome],
) -> SamplingFacts:
    """Return the `SamplingFacts` of a problem, updated by the new verdicts on its solutions.

    Args:
        rows: labelled solutions of the problem, with the recorded counts.
        solutions: the same solutions with their new outcomes.
        old_outcomes: recorded outcomes by solution id.
    """
    row = rows[0]
    siblings, num_right = row.siblings, row.num_sampled_right
    observed = siblings.num_rollouts  # number of solutions in the first batch
    for solution in solutions:
        if solution.origin == "given":
            continue
        then, now = old_outcomes[solution.id], solution.outcome
        if solution.sample_index < observed:
            siblings = _replace_outcome(siblings, then, now)
        num_right += (now is Outcome.RIGHT) - (then is Outcome.RIGHT)
    return SamplingFacts(
        first_batch_counts=siblings,
        num_sampled=row.num_sampled,
        num_sampled_right=num_right,
        chosen_by_outcome=row.chosen_by_outcome,
        probabilities=compute_selection_probabilities(rows),
    )


def _replace_outcome(counts: Counts, old: Outcome, new: Outcome) -> Counts:
    """Return a copy of the counts with one outcome `old` less and one outcome `new` more."""
    name = f"num_{old.value}"
    return replace(counts, **{name: getattr(counts, name) - 1}).plus(new)


def _replace_gold(problem: Problem, gold: Gold | None) -> Problem:
    if gold is None:
        return problem
    return replace(problem, answer=gold.answer, answer_is_json=gold.is_json)
