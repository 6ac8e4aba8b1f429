"""Labels any number of problems concurrently on one engine.

Every problem is a coroutine. It samples its solutions or reads them, builds the table of their
distinct prefixes, and runs an estimator, which requests rollouts. All active problems share the
engine, so the engine batches their rollouts together. No problem, step or block waits for another
one. Solutions that share a prefix also share its rollouts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mclabel.checkers import Checker
from mclabel.core.errors import DataError, RejectReason
from mclabel.core.records import (
    AUTHOR,
    Counts,
    GivenSolution,
    LabeledSolution,
    Outcome,
    Problem,
    Rollout,
    Solution,
)
from mclabel.data.readers.rows import read_text
from mclabel.engines import Policy
from mclabel.labeling.completers import PrefixNotReproduced
from mclabel.labeling.config import LabelSettings
from mclabel.labeling.decisions import DecisionBatcher, LearnerState, LearningTicket
from mclabel.labeling.estimators import (
    Completer,
    Knowledge,
    ProblemPaths,
    RunLearner,
    begin_estimator,
    begin_learner,
    classify_gold_answer,
    find_strongest_completer_index,
)
from mclabel.labeling.grading import grade_intermediate_answers
from mclabel.labeling.inputs import RolloutKey, SourceProblem, SourceRun
from mclabel.labeling.labeled import (
    SamplingFacts,
    build_labeled_solutions,
    compute_selection_probabilities,
)
from mclabel.labeling.prefixes import PrefixTable
from mclabel.labeling.rollouts import EstimatorRun, NoContextRoom, Sampler, roll_out_and_judge
from mclabel.labeling.sampling import sample_solutions
from mclabel.labeling.solutions import encode_given_solution, render_prompts, sample_solution
from mclabel.run.cpu_executor import CpuExecutor
from mclabel.run.shards.journal import BlockJournal

MAX_NAMED = 5
"""Maximum number of given solutions that a message lists."""


def make_run_learner(settings: LabelSettings) -> RunLearner | None:
    """Create the learner of a run, which fits the estimator's parameters to finished problems.

    Returns:
        The learner; None if the estimator does not learn.

    Raises:
        ConfigError: a file that the settings name cannot be read.
    """
    return begin_learner(settings.estimator, read_text)


@dataclass(kw_only=True)
class ProblemLabels:
    """Labels of one problem, and their cost."""

    labeled: list[LabeledSolution] = field(default_factory=list)
    rollouts: list[Rollout] = field(default_factory=list)
    num_tokens: int = 0
    """Number of tokens that this job sampled for the problem: those of all solutions, including
    discarded ones, and of all rollouts. Rollouts reused from a source run do not count."""
    knowledge: Knowledge | None = None
    """Parameters, fitted to other problems, with which the estimator started; None if the estimator
    has no such parameters."""
    dropped_counts: Mapping[str, int] | None = None
    """Numbers of sampled and of right solutions, if the problem has no labels because
    `solutions.balance` kept no solution; else None."""
    set_aside: RejectReason | None = None
    """Reason why the problem has no labels, or why some of its given solutions have none; None if
    all solutions are labelled."""
    num_reused_rollouts: int = 0
    """Number of rollouts that were reused from a source run."""


@dataclass(frozen=True, kw_only=True)
class RolloutModel:
    """A model that samples rollouts."""

    completer: Completer
    policy: Policy
    """Policy of the model, already started."""


@dataclass(frozen=True, kw_only=True)
class EngineContext:
    """State shared by all problems on one engine."""

    policy: Policy
    """Policy that writes the solutions, already started."""
    settings: LabelSettings
    checker: Checker
    executor: CpuExecutor
    """Executor for grading and the estimators' decisions."""
    decisions: DecisionBatcher
    """Batcher for the decisions of all problems' estimators."""
    first_state: LearnerState | None = None
    """Learner's state before any problem of the run; None if the estimator does not learn from
    problems."""
    source: SourceRun | None = None
    """Earlier run whose solutions are labelled and whose rollouts are reused; None if there is
    none."""
    completers: Sequence[RolloutModel] = ()
    """Configured models that sample rollouts; if empty, only the policy does."""

    @property
    def rollout_models(self) -> Sequence[RolloutModel]:
        """Models that sample rollouts: the configured ones, or else the policy alone."""
        return self.completers or [RolloutModel(completer=Completer(), policy=self.policy)]

    @property
    def values_of(self) -> str:
        """Name of the strongest completer (the model that samples rollouts and has the highest
        cost). Step values are estimated under this completer.
        """
        completers = [roller.completer for roller in self.rollout_models]
        return completers[find_strongest_completer_index(completers)].name


async def label_problem(
    problem: Problem,
    context: EngineContext,
    *,
    given: Sequence[GivenSolution] = (),
    priority: int = 0,
    on_solution: Callable[[Outcome], None] = lambda outcome: None,
    on_rollout: Callable[[Outcome], None] = lambda outcome: None,
    journal: BlockJournal | None = None,
    ticket: LearningTicket | None = None,
) -> ProblemLabels:
    """Label one problem's solutions.

    Args:
        problem: problem with its gold answer.
        context: state shared by the problems on the engine.
        given: given solutions to label; if empty, the policy samples the solutions.
        priority: priority of this problem's completions in the engine; lower values run first.
        on_solution: called with the outcome of every solution that the engine samples.
        on_rollout: called with the outcome of every rollout that an engine samples.
        journal: journal that holds the completions of earlier attempts and stores those of this
            one; None for no journal.
        ticket: learning ticket of the problem; None if the learner is not updated.

    Raises:
        EngineError: the engine died.
        DataError: if strict, the problem or one of its given solutions cannot be labelled.
    """
    policy, settings, executor = context.policy, context.settings, context.executor
    models = [(AUTHOR, policy)]
    models += [(item.completer.name, item.policy) for item in context.rollout_models]
    prompts = await render_prompts(
        problem, given, models, checker=context.checker, executor=executor
    )
    if isinstance(prompts, RejectReason):
        return _set_problem_aside_or_raise(problem, prompts, settings)
    prompt, *their_prompts = prompts
    sampler = Sampler(
        problem=problem,
        prompt=prompt,
        policy=policy,
        run_seed=settings.seed,
        priority=priority,
        on_completion=on_solution,
        journal=journal,
        checker=context.checker,
        executor=executor,
    )
    if context.source is not None:
        origin = _reuse_source_solutions(await executor.run(context.source.read_problem, problem))
    elif given:
        origin = await _encode_given_solutions(sampler, settings, given)
        if origin.reject_reason is not None and (settings.strict or not origin.solutions):
            return _set_problem_aside_or_raise(problem, origin.reject_reason, settings)
    else:
        origin = await _sample_from_policy(sampler, settings)
    sampling = origin.sampling
    if not origin.solutions:
        counts = {"num_sampled": sampling.num_sampled, "num_right": sampling.num_sampled_right}
        return ProblemLabels(num_tokens=origin.num_tokens, dropped_counts=counts)
    rollout_sampler = replace(sampler, on_completion=on_rollout, source_rollouts=origin.rollouts)
    samplers = [
        replace(
            rollout_sampler,
            policy=item.policy,
            prompt=ids,
            completer_name=item.completer.name,
            completer_index=number,
            is_author=item.policy is policy,
        )
        for number, (item, ids) in enumerate(
            zip(context.rollout_models, their_prompts, strict=True)
        )
    ]
    labels = await _label_solutions(
        context, samplers, prompt, origin.solutions, sampling, ticket=ticket
    )
    labels.num_tokens += origin.num_tokens
    labels.set_aside = labels.set_aside or origin.reject_reason
    return labels


async def _label_solutions(
    context: EngineContext,
    samplers: Sequence[Sampler],
    prompt: tuple[int, ...],
    solutions: Sequence[Solution],
    sampling: SamplingFacts,
    *,
    ticket: LearningTicket | None = None,
) -> ProblemLabels:
    """Label solutions of one problem that have been sampled and graded.

    Args:
        context: state shared by the problems on the engine.
        samplers: samplers of the problem, one for each model that samples rollouts.
        prompt: token ids of the prompt, for the policy that wrote the solutions.
        solutions: solutions of the problem.
        sampling: facts about the sampling of the solutions.
        ticket: learning ticket of the problem; None if the learner is not updated.

    Returns:
        The labels. Their `num_tokens` counts rollouts only.

    Raises:
        EngineError: the engine died.
        DataError: if strict, the solutions cannot be labelled.
    """
    learned = context.first_state if ticket is None else await ticket.wait_for_state()
    try:
        labels, paths, run = await _estimate_labels(
            context, samplers, prompt, solutions, sampling, learned
        )
    except (NoContextRoom, PrefixNotReproduced) as error:
        reason = "solution_too_long" if isinstance(error, NoContextRoom) else "other_tokens"
        why = RejectReason(reason, str(error))
        return _set_problem_aside_or_raise(samplers[0].problem, why, context.settings)
    if ticket is not None:
        await ticket.submit_results(run.estimator, paths, num_tokens=labels.num_tokens)
    return labels


def _set_problem_aside_or_raise(
    problem: Problem, reason: RejectReason, settings: LabelSettings
) -> ProblemLabels:
    """Return a result without labels, which records the reason; if `strict` is set, raise it.

    Raises:
        DataError: `strict` is set.
    """
    if settings.strict:
        raise DataError(f"problem {problem.id}: {reason.detail}")
    return ProblemLabels(set_aside=reason)


@dataclass(frozen=True, kw_only=True)
class _ObtainedSolutions:
    """Solutions of a problem to label, and how they were obtained."""

    solutions: Sequence[Solution]
    sampling: SamplingFacts
    num_tokens: int = 0
    """Number of tokens that this job sampled for the solutions."""
    reject_reason: RejectReason | None = None
    """Reason why some given solutions cannot be labelled; None if all of them can be."""
    rollouts: Mapping[RolloutKey, Rollout] = field(default_factory=dict)
    """Rollouts of an earlier run that are reused instead of sampled."""


def _reuse_source_solutions(source: SourceProblem) -> _ObtainedSolutions:
    """Reuse the solutions and rollouts of a source run; this samples no tokens."""
    first = source.rows[0]
    return _ObtainedSolutions(
        solutions=[row.solution for row in source.rows],
        sampling=SamplingFacts(
            first_batch_counts=first.siblings,
            num_sampled=first.num_sampled,
            num_sampled_right=first.num_sampled_right,
            chosen_by_outcome=first.chosen_by_outcome,
            probabilities=compute_selection_probabilities(source.rows),
        ),
        rollouts=source.rollouts,
    )


async def _encode_given_solutions(
    sampler: Sampler, settings: LabelSettings, given: Sequence[GivenSolution]
) -> _ObtainedSolutions:
    """Encode the given solutions in the policy's tokens.

    Solutions whose text the tokenizer does not reproduce are left out.
    """
    splitter = settings.split
    thinks = splitter.prompt_opens_thinking(sampler.policy.decode(sampler.prompt))
    placed = [
        await encode_given_solution(
            sampler, solution, _get_index_in_file(solution, place), splitter, thinks
        )
        for place, solution in enumerate(given)
    ]
    solutions = [solution for solution in placed if solution is not None]
    selections = {
        _get_index_in_file(item, n): item.selection
        for n, item in enumerate(given)
        if item.selection
    }
    return _ObtainedSolutions(
        solutions=solutions,
        sampling=SamplingFacts(
            first_batch_counts=Counts(),
            num_sampled=0,
            num_sampled_right=0,
            chosen_by_outcome=any(selection.by_content for selection in selections.values()),
            probabilities={
                solution.id: selections[solution.sample_index].probability
                for solution in solutions
                if solution.sample_index in selections
            },
        ),
        reject_reason=_make_not_reproduced_reason(placed),
    )


def _make_not_reproduced_reason(encoded: Sequence[Solution | None]) -> RejectReason | None:
    lost = [str(index) for index, solution in enumerate(encoded) if solution is None]
    if not lost:
        return None
    shown = ", ".join(lost[:MAX_NAMED]) + (", …" if len(lost) > MAX_NAMED else "")
    detail = (
        f"{len(lost)} of its {len(encoded)} given solutions (index {shown}, counted from 0): the "
        "policy's tokenizer does not reproduce the text, so the steps have no exact token "
        "boundaries. Correct or remove these solutions"
    )
    return RejectReason("not_reproduced", detail)


async def _sample_from_policy(sampler: Sampler, settings: LabelSettings) -> _ObtainedSolutions:
    """Sample solutions from the policy; `solutions.balance` may keep none of them."""
    splitter, choice = settings.split, settings.solutions
    thinks = splitter.prompt_opens_thinking(sampler.policy.decode(sampler.prompt))
    sampled = await sample_solutions(
        lambda index: sample_solution(sampler, index, splitter, thinks),
        batch_size=choice.per_problem,
        balance=choice.balance,
        max_samples=choice.max_sampled_solutions,
    )
    return _ObtainedSolutions(
        solutions=sampled.kept,
        sampling=SamplingFacts(
            first_batch_counts=sampled.first_batch_counts,
            num_sampled=sampled.num_sampled,
            num_sampled_right=sampled.num_right,
            chosen_by_outcome=choice.balance is not None,
        ),
        num_tokens=sampled.num_tokens,
    )


def _get_index_in_file(given: GivenSolution, fallback: int) -> int:
    """Return the index of a given solution among all solutions of the problem in its file.

    Args:
        given: given solution.
        fallback: index among the solutions that are labelled, used if the solution has no index.
    """
    return fallback if given.index is None else given.index


async def _estimate_labels(
    context: EngineContext,
    samplers: Sequence[Sampler],
    prompt: tuple[int, ...],
    solutions: Sequence[Solution],
    sampling: SamplingFacts,
    learned: LearnerState | None,
) -> tuple[ProblemLabels, ProblemPaths, EstimatorRun]:
    """Sample the rollouts that the estimator requests, and build the labels from its judgements.

    Args:
        context: state shared by the problems on the engine.
        samplers: samplers of the problem, one for each model that samples rollouts.
        prompt: token ids of the prompt, for the policy that wrote the solutions.
        solutions: solutions of the problem.
        sampling: facts about the sampling of the solutions.
        learned: learner state with which the estimator starts; None if the run has no learner.

    Returns:
        The labels, whose `num_tokens` counts rollouts only, the solutions' paths, and the finished
        estimator run.
    """
    settings = context.settings
    problem, executor = samplers[0].problem, context.executor
    completers = [sampler.completer for sampler in context.rollout_models]
    knowledge = None if learned is None else learned.knowledge
    min_gain = None if learned is None else learned.min_gain

    def make_estimator_run() -> tuple[ProblemPaths, EstimatorRun]:
        table = PrefixTable(
            problem,
            with_steps,
            commitments=stated,
            completers=[completer.name for completer in completers],
            splitter=settings.split,
            prompt_opens_thinking=settings.split.prompt_opens_thinking(
                context.policy.decode(prompt)
            ),
            kept_regardless_of_outcome=not sampling.chosen_by_outcome,
        )
        paths = ProblemPaths(
            paths=table.paths,
            answer_class=classify_gold_answer(problem),
            completers=completers,
        )
        estimator = begin_estimator(
            settings.estimator,
            paths,
            knowledge=knowledge,
            min_gain=min_gain,
        )
        return paths, EstimatorRun(estimator, table, [sampler.policy for sampler in samplers])

    with_steps = [solution for solution in solutions if solution.steps]
    stated = await grade_intermediate_answers(problem, with_steps, context.checker, executor.run)
    paths, run = await executor.run(make_estimator_run)
    judgements = await roll_out_and_judge(
        run, samplers, executor=executor, decisions=context.decisions
    )
    labeled = build_labeled_solutions(
        problem,
        prompt,
        solutions,
        run.table,
        judgements,
        sampling=sampling,
        completers=completers,
        values_of=context.values_of,
        priors=None if knowledge is None else knowledge.id,
        min_gain=min_gain,
        truncated=settings.estimator.truncated,
    )
    taken = samplers[0].source_rollouts
    sampled = [r for r in run.rollouts if (r.prefix_id, r.completer, r.index) not in taken]
    labels = ProblemLabels(
        labeled=labeled,
        rollouts=run.rollouts,
        num_tokens=sum(rollout.num_tokens for rollout in sampled),
        knowledge=knowledge,
        num_reused_rollouts=len(run.rollouts) - len(sampled),
    )
    return labels, paths, run
