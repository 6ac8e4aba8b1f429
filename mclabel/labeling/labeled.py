"""Labelled solutions from an estimator's judgements: the rows of a labels shard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mclabel.core.records import (
    AUTHOR,
    CompleterCounts,
    Counts,
    LabeledSolution,
    Problem,
    Solution,
    StepLabel,
    total_counts,
)
from mclabel.core.seeds import prefix_id
from mclabel.core.stats.values import TruncatedPolicy, root_value
from mclabel.labeling.estimators import (
    ROOT,
    Completer,
    Judgement,
    ProblemPaths,
    SolutionPath,
    answer_class,
    begin_estimator,
)
from mclabel.labeling.estimators.fixed import OutcomeEstimator
from mclabel.labeling.prefixes import Prefix, PrefixTable


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """The way that a problem's solutions came to be labelled."""

    siblings: Counts
    """Outcomes of those that were sampled whatever the outcomes."""
    num_sampled: int
    num_sampled_right: int
    chosen_by_outcome: bool
    probabilities: Mapping[str, float] = field(default_factory=dict)
    """Probability of selection from a pool, by solution id; only for selected solutions."""


def selection_probabilities(rows: Iterable[LabeledSolution]) -> dict[str, float]:
    """Return the probability of selection from a pool, by solution id."""
    probabilities = ((row.solution.id, row.selection_probability) for row in rows)
    return {name: probability for name, probability in probabilities if probability is not None}


def labeled_solutions(
    problem: Problem,
    prompt: tuple[int, ...],
    solutions: Sequence[Solution],
    table: PrefixTable,
    judgements: Sequence[Judgement],
    *,
    sampling: Sampling,
    completers: Sequence[Completer],
    values_of: str,
    priors: str | None,
    min_gain: float | None,
    truncated: TruncatedPolicy,
    num_missing: int | None = None,
) -> list[LabeledSolution]:
    """One row a solution.

    Args:
        problem: with its gold answer.
        prompt: ids of the rendered problem.
        solutions: solutions of the problem, in order.
        table: table of the prefixes of those with steps, with their counts.
        judgements: one a solution with steps, in order.
        sampling: sampling of the solutions.
        completers: that rolled out, in the order of the table's counts.
        values_of: name of the completer whose values they are.
        priors: id of what the estimator had learned over the run, if it learns.
        min_gain: minimum expected gain for which it requested rollouts.
        truncated: what a rollout cut by its length counts as.
        num_missing: rollouts that were wanted and are not there; None where they were sampled.
    """
    roots = dict(zip(table.completers, table.prefixes[ROOT].counts, strict=True))
    root, share = total_counts(roots.values()), None
    if values_of in roots:
        free = sampling.siblings if values_of == AUTHOR else Counts()
        share = root_value(roots[values_of], free, truncated=truncated)
    judged = iter(zip(table.paths, judgements, strict=True))
    labeled = []
    for solution in solutions:
        steps: tuple[StepLabel, ...] = ()
        judgement = None
        counted: list[tuple[Counts, ...]] = [() for _ in completers]
        if solution.steps:
            path, judgement = next(judged)
            counted = _counts_by_completer(path, table.prefixes, len(completers))
            steps = _labels(solution, table.prefixes, path, judgement, counted)
        stopped = judgement.root if judgement else None
        labeled.append(
            LabeledSolution(
                problem=problem,
                solution=solution,
                prompt_ids=prompt,
                steps=steps,
                first_error=judgement.first_error if judgement else None,
                root=root,
                siblings=sampling.siblings,
                root_value=share if stopped is None else stopped.value,
                posterior=judgement.posterior if judgement else None,
                priors=priors,
                min_gain=min_gain,
                num_sampled=sampling.num_sampled,
                num_sampled_right=sampling.num_sampled_right,
                chosen_by_outcome=sampling.chosen_by_outcome,
                selection_probability=sampling.probabilities.get(solution.id),
                num_missing=num_missing,
                completers=tuple(
                    CompleterCounts(
                        name=completer.name,
                        cost=completer.cost,
                        root=roots[completer.name],
                        steps=own,
                    )
                    for completer, own in zip(completers, counted, strict=True)
                ),
                values_of=values_of,
            )
        )
    return labeled


def completers_of(row: LabeledSolution) -> list[Completer]:
    """Return who rolled out; the author alone in rows that do not say."""
    return [Completer(name=counts.name, cost=counts.cost) for counts in row.completers] or [
        Completer()
    ]


def _counts_by_completer(
    path: SolutionPath, prefixes: Sequence[Prefix], num_completers: int
) -> list[tuple[Counts, ...]]:
    """Return each completer's counts of rollouts after each step; the last step has none."""
    return [
        (*(prefixes[number].counts[who] for number in path.prefixes), Counts())
        for who in range(num_completers)
    ]


def _labels(
    solution: Solution,
    prefixes: Sequence[Prefix],
    path: SolutionPath,
    judgement: Judgement,
    counted: Sequence[Sequence[Counts]],
) -> tuple[StepLabel, ...]:
    last = prefix_id(solution.problem_id, solution.ids)
    ids = [*(prefixes[number].id for number in path.prefixes), last]
    counts = [total_counts(of_step) for of_step in zip(*counted, strict=True)]
    nothing = (None,) * len(ids)
    states, committed = judgement.states or nothing, path.commitments or nothing
    labels = (judgement.sources, judgement.hard, judgement.estimates, states)
    columns = zip(ids, counts, *labels, committed, strict=True)
    return tuple(
        StepLabel(
            prefix_id=identity,
            counts=count,
            source=source,
            hard=hard,
            value=estimate.value,
            low=estimate.low,
            high=estimate.high,
            mean=estimate.mean,
            state=state,
            committed=answer,
        )
        for identity, count, source, hard, estimate, state, answer in columns
    )


def unrolled_solutions(
    problem: Problem, prompt: tuple[int, ...], solutions: Sequence[Solution], sampling: Sampling
) -> list[LabeledSolution]:
    """One row a solution, labelled by its outcome alone.

    Args:
        problem: with its gold answer.
        prompt: ids of the rendered problem.
        solutions: graded, in order.
        sampling: sampling of the solutions.
    """
    completers = [Completer()]
    table = PrefixTable(
        problem,
        [solution for solution in solutions if solution.steps],
        free_outcomes=not sampling.chosen_by_outcome,
    )
    settings = OutcomeEstimator.Settings()
    paths = ProblemPaths(
        paths=table.paths, answer_class=answer_class(problem), completers=completers
    )
    estimator = begin_estimator(settings, paths, knowledge=None, min_gain=None)
    judgements = estimator.judge([[Counts() for _ in table.prefixes]])
    return labeled_solutions(
        problem,
        prompt,
        solutions,
        table,
        judgements,
        sampling=sampling,
        completers=completers,
        values_of=AUTHOR,
        priors=None,
        min_gain=None,
        truncated=settings.truncated,
    )
