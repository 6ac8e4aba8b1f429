"""Labels problems on one engine, any number of them at a time.

Every problem is a coroutine: it samples or takes its solutions, builds the table of their
distinct prefixes, and feeds an estimator, which asks for rollouts. All problems under way
share the engine, so that it batches their rollouts together; no problem, step or block waits
for another. Identical prefixes of a problem are rolled out once.
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
from mclabel.labeling.completers import Inexpressible
from mclabel.labeling.config import LabelSettings
from mclabel.labeling.decisions import DecisionBatcher, LearnerState, LearningTicket
from mclabel.labeling.estimators import (
    Completer,
    Knowledge,
    ProblemPaths,
    RunLearner,
    answer_class,
    begin_estimator,
    begin_learner,
    strongest,
)
from mclabel.labeling.grading import commitments
from mclabel.labeling.inputs import Place, SourceProblem, SourceRun
from mclabel.labeling.labeled import Sampling, labeled_solutions, selection_probabilities
from mclabel.labeling.prefixes import PrefixTable
from mclabel.labeling.rollouts import EstimatorRun, NoRoom, Sampler, roll_out
from mclabel.labeling.sampling import sample_solutions
from mclabel.labeling.solutions import given_solution, prompts_for, sampled_solution
from mclabel.run.cpu_executor import CpuExecutor
from mclabel.run.shards.journal import BlockJournal

MAX_NAMED = 5
"""Given solutions that a message names."""


def run_learner(settings: LabelSettings) -> RunLearner | None:
    """Make what learns over the problems of a run, where the estimator has one.

    Raises:
        ConfigError: a file that the settings name cannot be read.
    """
    return begin_learner(settings.estimator, read_text)


@dataclass(kw_only=True)
class ProblemLabels:
    """Labels of one problem, and their cost."""

    labeled: list[LabeledSolution]
    rollouts: list[Rollout]
    num_tokens: int = 0
    """Tokens of all sampled solutions, including discarded ones, and of all rollouts except those
    taken over from a source."""
    knowledge: Knowledge | None = None
    """Knowledge from other problems with which the estimator began."""
    dropped: Mapping[str, int] | None = None
    """Numbers of sampled and of right solutions, if the problem has no labels because `balance`
    could keep none.
    """
    set_aside: RejectReason | None = None
    """Why the problem cannot be labelled, or if it has labels, why some given solutions have none.
    """
    num_taken: int = 0
    """Number of rollouts that were taken over from a source."""


@dataclass(frozen=True, kw_only=True)
class RolloutModel:
    """A model that rolls out."""

    completer: Completer
    policy: Policy
    """Started."""


@dataclass(frozen=True, kw_only=True)
class EngineContext:
    """State shared by all problems on one engine."""

    policy: Policy
    """Started. It writes the solutions."""
    settings: LabelSettings
    checker: Checker
    executor: CpuExecutor
    """Executor for grading and the estimators' decisions."""
    decisions: DecisionBatcher
    """Batches of decisions of several estimators."""
    beginning: LearnerState | None = None
    """Knowledge at the beginning of the run, if its estimator learns over problems."""
    source: SourceRun | None = None
    """A run whose solutions are labelled, and whose rollouts are taken over."""
    rolling: Sequence[RolloutModel] = ()
    """Models that roll out; empty if only the policy does."""

    @property
    def rolling_out(self) -> Sequence[RolloutModel]:
        """Return what rolls out."""
        return self.rolling or [RolloutModel(completer=Completer(), policy=self.policy)]

    @property
    def values_of(self) -> str:
        """Name of the strongest completer, whose values the labels have."""
        completers = [roller.completer for roller in self.rolling_out]
        return completers[strongest(completers)].name


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
        problem: with its gold answer.
        context: state shared by the problems on the engine.
        given: solutions to label; without any, the policy samples them.
        priority: priority of this problem's completions in the engine, lower first.
        on_solution: called with the outcome of every solution that the engine samples.
        on_rollout: called with the outcome of every rollout that an engine samples.
        journal: has completions of an earlier attempt, and receives those of this one.
        ticket: what the run's learner will be taught of the problem; None for nothing.

    Raises:
        EngineError: the engine died.
        DataError: if strict, the problem or one of its given solutions cannot be labelled.
    """
    policy, settings, executor = context.policy, context.settings, context.executor
    models = [(AUTHOR, policy)]
    models += [(item.completer.name, item.policy) for item in context.rolling_out]
    prompts = await prompts_for(problem, given, models, checker=context.checker, executor=executor)
    if isinstance(prompts, RejectReason):
        return _left_out(problem, prompts, settings)
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
        origin = _from_source(await executor.run(context.source.problem, problem))
    elif given:
        origin = await _from_user(sampler, settings, given)
        if origin.lost is not None and (settings.strict or not origin.solutions):
            return _left_out(problem, origin.lost, settings)
    else:
        origin = await _from_policy(sampler, settings)
    sampling = origin.sampling
    if not origin.solutions:
        counts = {"num_sampled": sampling.num_sampled, "num_right": sampling.num_sampled_right}
        return ProblemLabels(labeled=[], rollouts=[], num_tokens=origin.num_tokens, dropped=counts)
    samplers = [
        replace(
            sampler,
            policy=item.policy,
            prompt=ids,
            name=item.completer.name,
            number=number,
            on_completion=on_rollout,
            writes=item.policy is policy,
            recorded=origin.rollouts,
        )
        for number, (item, ids) in enumerate(zip(context.rolling_out, their_prompts, strict=True))
    ]
    labels = await label_sampled(
        context, samplers, prompt, origin.solutions, sampling, ticket=ticket
    )
    labels.num_tokens += origin.num_tokens
    labels.set_aside = labels.set_aside or origin.lost
    return labels


async def label_sampled(
    context: EngineContext,
    samplers: Sequence[Sampler],
    prompt: tuple[int, ...],
    solutions: Sequence[Solution],
    sampling: Sampling,
    *,
    ticket: LearningTicket | None = None,
) -> ProblemLabels:
    """Label solutions of one problem that are there.

    Args:
        context: state shared by the problems on the engine.
        samplers: samplers of the problem, one for each model that rolls out.
        prompt: prompt of the policy that wrote the solutions.
        solutions: solutions of the problem.
        sampling: how they came about.
        ticket: what the run's learner will be taught of the problem; None for nothing.

    Returns:
        The labels; their tokens are those of rollouts.

    Raises:
        EngineError: the engine died.
        DataError: if strict, the solutions cannot be labelled.
    """
    learned = context.beginning if ticket is None else await ticket.learned()
    try:
        labels, paths, run = await _estimate(
            context, samplers, prompt, solutions, sampling, learned
        )
    except (NoRoom, Inexpressible) as error:
        reason = "solution_too_long" if isinstance(error, NoRoom) else "other_tokens"
        why = RejectReason(reason, str(error))
        return _left_out(samplers[0].problem, why, context.settings)
    if ticket is not None:
        await ticket.teach(run.checked, paths, num_tokens=labels.num_tokens)
    return labels


def _left_out(problem: Problem, why: RejectReason, settings: LabelSettings) -> ProblemLabels:
    """A problem without labels; an error if the job is to stop at one."""
    if settings.strict:
        raise DataError(f"problem {problem.id}: {why.detail}")
    return ProblemLabels(labeled=[], rollouts=[], set_aside=why)


@dataclass(frozen=True, kw_only=True)
class _Origin:
    """Solutions of a problem that are to be labelled, and where they come from."""

    solutions: Sequence[Solution]
    sampling: Sampling
    num_tokens: int = 0
    """Tokens that were sampled for them in this job."""
    lost: RejectReason | None = None
    """Why some given solutions cannot be labelled."""
    rollouts: Mapping[Place, Rollout] = field(default_factory=dict)
    """Rollouts of a source, which are not sampled again."""


def _from_source(source: SourceProblem) -> _Origin:
    """Take over the solutions and rollouts of another run, which costs nothing now."""
    first = source.rows[0]
    return _Origin(
        solutions=[row.solution for row in source.rows],
        sampling=Sampling(
            siblings=first.siblings,
            num_sampled=first.num_sampled,
            num_sampled_right=first.num_sampled_right,
            chosen_by_outcome=first.chosen_by_outcome,
            probabilities=selection_probabilities(source.rows),
        ),
        rollouts=source.rollouts,
    )


async def _from_user(
    sampler: Sampler, settings: LabelSettings, given: Sequence[GivenSolution]
) -> _Origin:
    """Return the given solutions in the policy's tokens; some may not be reproduced."""
    splitter = settings.split
    thinks = splitter.begins_in(sampler.policy.decode(sampler.prompt))
    placed = [
        await given_solution(sampler, solution, _index(solution, place), splitter, thinks)
        for place, solution in enumerate(given)
    ]
    solutions = [solution for solution in placed if solution is not None]
    selections = {_index(item, n): item.selection for n, item in enumerate(given) if item.selection}
    return _Origin(
        solutions=solutions,
        sampling=Sampling(
            siblings=Counts(),
            num_sampled=0,
            num_sampled_right=0,
            chosen_by_outcome=any(selection.by_content for selection in selections.values()),
            probabilities={
                solution.id: selections[solution.sample_index].probability
                for solution in solutions
                if solution.sample_index in selections
            },
        ),
        lost=_not_reproduced(placed),
    )


def _not_reproduced(placed: Sequence[Solution | None]) -> RejectReason | None:
    lost = [str(index) for index, solution in enumerate(placed) if solution is None]
    if not lost:
        return None
    shown = ", ".join(lost[:MAX_NAMED]) + (", …" if len(lost) > MAX_NAMED else "")
    detail = (
        f"{len(lost)} of its {len(placed)} given solutions (solution {shown}, from 0): the "
        "policy's tokenizer does not reproduce the text, so the steps have no exact token "
        "boundaries. Correct or remove it"
    )
    return RejectReason("not_reproduced", detail)


async def _from_policy(sampler: Sampler, settings: LabelSettings) -> _Origin:
    """Sample solutions from the policy; none is kept if the problem is dropped."""
    splitter, choice = settings.split, settings.solutions
    thinks = splitter.begins_in(sampler.policy.decode(sampler.prompt))
    sampled = await sample_solutions(
        lambda index: sampled_solution(sampler, index, splitter, thinks),
        count=choice.per_problem,
        balance=choice.balance,
        max_samples=choice.most_samples,
    )
    return _Origin(
        solutions=sampled.kept,
        sampling=Sampling(
            siblings=sampled.first,
            num_sampled=sampled.num_sampled,
            num_sampled_right=sampled.num_right,
            chosen_by_outcome=choice.balance is not None,
        ),
        num_tokens=sampled.num_tokens,
    )


def _index(given: GivenSolution, place: int) -> int:
    """The number of a given solution among the problem's.

    Args:
        given: the solution.
        place: its place among those that are labelled.
    """
    return place if given.index is None else given.index


async def _estimate(
    context: EngineContext,
    samplers: Sequence[Sampler],
    prompt: tuple[int, ...],
    solutions: Sequence[Solution],
    sampling: Sampling,
    learned: LearnerState | None,
) -> tuple[ProblemLabels, ProblemPaths, EstimatorRun]:
    """Roll out what the estimator wants, and label by it; tokens are those of rollouts.

    `prompt` is the author's, the samplers are of what rolls out.
    """
    settings = context.settings
    problem, executor = samplers[0].problem, context.executor
    completers = [sampler.completer for sampler in context.rolling_out]
    knowledge = None if learned is None else learned.knowledge
    min_gain = None if learned is None else learned.min_gain

    def begin() -> tuple[ProblemPaths, EstimatorRun]:
        table = PrefixTable(
            problem,
            with_steps,
            commitments=stated,
            completers=[completer.name for completer in completers],
            splitter=settings.split,
            thinks=settings.split.begins_in(context.policy.decode(prompt)),
            free_outcomes=not sampling.chosen_by_outcome,
        )
        paths = ProblemPaths(
            paths=table.paths,
            answer_class=answer_class(problem),
            completers=completers,
        )
        estimator = begin_estimator(
            settings.estimator,
            paths,
            knowledge=knowledge,
            min_gain=min_gain,
        )
        follows = [sampler.policy for sampler in samplers]
        return paths, EstimatorRun(estimator, table, follows)

    with_steps = [solution for solution in solutions if solution.steps]
    stated = await commitments(problem, with_steps, context.checker, executor.run)
    paths, run = await executor.run(begin)
    judgements = await roll_out(run, samplers, executor=executor, decisions=context.decisions)
    labeled = labeled_solutions(
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
    taken = samplers[0].recorded
    sampled = [r for r in run.rollouts if (r.prefix_id, r.completer, r.index) not in taken]
    labels = ProblemLabels(
        labeled=labeled,
        rollouts=run.rollouts,
        num_tokens=sum(rollout.num_tokens for rollout in sampled),
        knowledge=knowledge,
        num_taken=len(run.rollouts) - len(sampled),
    )
    return labels, paths, run
