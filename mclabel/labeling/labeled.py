"""Builds labelled solutions, the rows of a labels shard, from an estimator's judgements.

The author is the model that wrote the solutions; completers are the models that sampled rollouts.
"""

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
    add_counts,
)
from mclabel.core.seeds import prefix_id
from mclabel.core.stats.values import TruncatedPolicy, estimate_root_value
from mclabel.labeling.estimators import (
    ROOT,
    Completer,
    Judgement,
    ProblemPaths,
    SolutionPath,
    begin_estimator,
    classify_gold_answer,
)
from mclabel.labeling.estimators.fixed import OutcomeEstimator
from mclabel.labeling.prefixes import Prefix, PrefixTable


@dataclass(frozen=True, kw_only=True)
class SamplingFacts:
    """Facts about the sampling and selection of a problem's solutions."""

    first_batch_counts: Counts
    """Outcome counts of the first batch of sampled solutions. The size of this batch was fixed
    before any outcome was known, so the counts are an unbiased sample."""
    num_sampled: int
    """Number of sampled solutions, including discarded ones."""
    num_sampled_right: int
    chosen_by_outcome: bool
    """True if outcomes decided which solutions were kept."""
    probabilities: Mapping[str, float] = field(default_factory=dict)
    """Probability with which `mclabel select` chose the solution from a pool, by solution id.
    Solutions that were not chosen in this way have no entry."""


def compute_selection_probabilities(rows: Iterable[LabeledSolution]) -> dict[str, float]:
    """Return the selection probabilities of the rows that were selected from a pool, by solution
    id.
    """
    probabilities = ((row.solution.id, row.selection_probability) for row in rows)
    return {name: probability for name, probability in probabilities if probability is not None}


def build_labeled_solutions(
    problem: Problem,
    prompt: tuple[int, ...],
    solutions: Sequence[Solution],
    table: PrefixTable,
    judgements: Sequence[Judgement],
    *,
    sampling: SamplingFacts,
    completers: Sequence[Completer],
    values_of: str,
    priors: str | None,
    min_gain: float | None,
    truncated: TruncatedPolicy,
    num_missing: int | None = None,
) -> list[LabeledSolution]:
    """Build one labelled row per solution.

    Args:
        problem: problem with its gold answer.
        prompt: token ids of the rendered problem.
        solutions: solutions of the problem, in order.
        table: prefixes of those solutions that have steps, with the prefixes' rollout counts.
        judgements: the estimator's labels, one entry for each solution that has steps, in order.
        sampling: facts about the sampling of the solutions.
        completers: models that sampled rollouts, in the order of `Prefix.counts`.
        values_of: name of the completer under which the step values are estimated.
        priors: id of the fitted parameters with which the estimator started; None if it has none.
        min_gain: minimum expected gain of a requested rollout; None if the estimator has none.
        truncated: rule for counting truncated rollouts.
        num_missing: number of requested rollouts that were never recorded, if recorded rollouts
            were replayed; None if rollouts were sampled.
    """
    roots = dict(zip(table.completers, table.prefixes[ROOT].counts, strict=True))
    root, share = add_counts(roots.values()), None
    if values_of in roots:
        free = sampling.first_batch_counts if values_of == AUTHOR else Counts()
        share = estimate_root_value(roots[values_of], free, truncated=truncated)
    judged = iter(zip(table.paths, judgements, strict=True))
    labeled = []
    for solution in solutions:
        steps: tuple[StepLabel, ...] = ()
        judgement = None
        counted: list[tuple[Counts, ...]] = [() for _ in completers]
        if solution.steps:
            path, judgement = next(judged)
            # The counts after the last step are always zero, since nothing is left to roll out.
            counted = [
                (*(table.prefixes[prefix].counts[number] for prefix in path.prefixes), Counts())
                for number in range(len(completers))
            ]
            steps = _build_step_labels(solution, table.prefixes, path, judgement, counted)
        stopped = judgement.root if judgement else None
        labeled.append(
            LabeledSolution(
                problem=problem,
                solution=solution,
                prompt_ids=prompt,
                steps=steps,
                first_error=judgement.first_error if judgement else None,
                root=root,
                siblings=sampling.first_batch_counts,
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
                        name=own.name, cost=own.cost, root=roots[own.name], steps=counts
                    )
                    for own, counts in zip(completers, counted, strict=True)
                ),
                values_of=values_of,
            )
        )
    return labeled


def get_row_completers(row: LabeledSolution) -> list[Completer]:
    """Return the completers of a row. A row that records none has one completer, the author."""
    return [Completer(name=counts.name, cost=counts.cost) for counts in row.completers] or [
        Completer()
    ]


def _build_step_labels(
    solution: Solution,
    prefixes: Sequence[Prefix],
    path: SolutionPath,
    judgement: Judgement,
    counted: Sequence[Sequence[Counts]],
) -> tuple[StepLabel, ...]:
    last = prefix_id(solution.problem_id, solution.ids)
    ids = [*(prefixes[number].id for number in path.prefixes), last]
    counts = [add_counts(of_step) for of_step in zip(*counted, strict=True)]
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


def label_by_outcome(
    problem: Problem,
    prompt: tuple[int, ...],
    solutions: Sequence[Solution],
    sampling: SamplingFacts,
) -> list[LabeledSolution]:
    """Build one row per solution, labelled by the solution's outcome without rollouts.

    Args:
        problem: problem with its gold answer.
        prompt: token ids of the rendered problem.
        solutions: graded solutions, in order.
        sampling: facts about the sampling of the solutions.
    """
    completers = [Completer()]
    table = PrefixTable(
        problem,
        [solution for solution in solutions if solution.steps],
        kept_regardless_of_outcome=not sampling.chosen_by_outcome,
    )
    settings = OutcomeEstimator.Settings()
    paths = ProblemPaths(
        paths=table.paths, answer_class=classify_gold_answer(problem), completers=completers
    )
    estimator = begin_estimator(settings, paths, knowledge=None, min_gain=None)
    judgements = estimator.judge([[Counts() for _ in table.prefixes]])
    return build_labeled_solutions(
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
