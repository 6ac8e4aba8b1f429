"""Labels problems on one engine, any number of them at a time.

Every problem is a coroutine: it samples or takes its solutions, builds the table of their
distinct prefixes, and feeds an estimator, which asks for rollouts. All problems under way
share the engine, so that it batches their rollouts together; no problem, step or block waits
for another. Identical prefixes of a problem are rolled out once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mclabel.checkers import Checker
from mclabel.data.readers.remote import read_text
from mclabel.data.readers.rows import Fault
from mclabel.data.shards.rejects import bounded
from mclabel.data.steps import StepSplitter, split_steps
from mclabel.engines import Policy
from mclabel.errors import DataError
from mclabel.estimators import (
    Knowledge,
    ProblemPaths,
    RunLearner,
    answer_class,
    begin_estimator,
    begin_learner,
)
from mclabel.labeling.decisions import Decisions
from mclabel.labeling.journal import LabelJournal
from mclabel.labeling.labeled import Sampling, labeled_solutions
from mclabel.labeling.prefixes import PrefixTable
from mclabel.labeling.rollouts import EstimatorRun, NoRoom, Sampler, roll_out
from mclabel.labeling.sampling import Sampled, sample_solutions
from mclabel.labeling.settings import LabelSettings
from mclabel.records import (
    Completion,
    Counts,
    GivenSolution,
    LabeledSolution,
    Outcome,
    Problem,
    Rollout,
    Solution,
)
from mclabel.seeds import content_id, sampling_seed
from mclabel.work.desk import Desk


def run_learner(settings: LabelSettings) -> RunLearner | None:
    """What learns over the problems of a run, where the estimator has one.

    Raises:
        ConfigError: a file that the settings name cannot be read.
    """
    return begin_learner(settings.estimator, read_text)


@dataclass(kw_only=True)
class ProblemLabels:
    """What labelling one problem gives."""

    labeled: list[LabeledSolution]
    rollouts: list[Rollout]
    num_tokens: int = 0
    """Of all solutions that were sampled, kept or not, and of all rollouts."""
    knowledge: Knowledge | None = None
    """What the estimator had learned from other problems when it began."""
    dropped: Mapping[str, int] | None = None
    """Of a problem without labels, as no right and wrong solutions could be kept: how many were
    sampled, and how many were right."""
    set_aside: Fault | None = None
    """Why the problem cannot be labelled."""


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What the problems on one engine share."""

    policy: Policy
    """Started."""
    settings: LabelSettings
    checker: Checker
    desk: Desk
    """Where grading and the estimators' decisions are computed."""
    decisions: Decisions
    """Where estimators decide together."""
    learner: RunLearner | None = None
    """Learns over the problems, where the estimator has one."""


async def label_problem(
    problem: Problem,
    shared: Shared,
    *,
    given: Sequence[GivenSolution] = (),
    priority: int = 0,
    on_completion: Callable[[Outcome], None] = lambda outcome: None,
    journal: LabelJournal | None = None,
    learns: bool = True,
) -> ProblemLabels:
    """Label one problem's solutions.

    Args:
        problem: with its gold answer.
        shared: with the other problems on the engine.
        given: solutions to label; without any, the policy samples them.
        priority: of this problem's completions in the engine, lower first.
        on_completion: called with the outcome of every completion that the engine samples.
        journal: has completions of an earlier attempt, and receives those of this one.
        learns: whether the run's learner records the problem.

    Raises:
        EngineError: the engine died.
        DataError: a given solution does not survive the policy's tokenizer; if strict, the problem
            cannot be labelled.
    """
    policy, settings, desk = shared.policy, shared.settings, shared.desk
    prompt: tuple[int, ...] = ()
    if (fault := _too_long(problem, given, policy)) is None:
        prompt = policy.prompt_ids(problem.text)
        fault = await _fault(problem, len(prompt), shared)
    if fault is not None:
        return _left_out(problem, fault, settings)
    sampler = Sampler(
        problem=problem,
        prompt=prompt,
        policy=policy,
        run_seed=settings.seed,
        priority=priority,
        on_completion=on_completion,
        journal=journal,
        checker=shared.checker,
        desk=desk,
    )
    solutions, sampled = await _solutions(sampler, settings, given)
    if not solutions:
        counts = {"num_sampled": sampled.num_sampled, "num_right": sampled.num_right}
        return ProblemLabels(labeled=[], rollouts=[], num_tokens=sampled.num_tokens, dropped=counts)
    sampling = Sampling(
        siblings=sampled.first,
        num_sampled=sampled.num_sampled,
        num_sampled_right=sampled.num_right,
        chosen_by_outcome=settings.solutions.balance is not None and not given,
    )
    try:
        labels, paths, run = await _estimate(shared, sampler, solutions, sampling)
    except NoRoom as error:
        return _left_out(problem, Fault("solution_too_long", str(error)), settings)
    num_rolled = labels.num_tokens
    if shared.learner is not None and learns:
        await desk.run(run.checked.learned_by, shared.learner, paths, num_tokens=num_rolled)
    labels.num_tokens += sampled.num_tokens
    return labels


def _left_out(problem: Problem, fault: Fault, settings: LabelSettings) -> ProblemLabels:
    """A problem without labels; an error if the job is to stop at one."""
    if settings.strict:
        raise DataError(f"problem {problem.id}: {fault.detail}")
    return ProblemLabels(labeled=[], rollouts=[], set_aside=fault)


async def _solutions(
    sampler: Sampler, settings: LabelSettings, given: Sequence[GivenSolution]
) -> tuple[list[Solution], Sampled]:
    """The solutions to label, and how they were sampled; none if the problem is dropped."""
    splitter = settings.split
    thinks = splitter.begins_in(sampler.policy.decode(sampler.prompt))
    if given:
        solutions = [
            await _given(sampler, one, index, splitter, thinks) for index, one in enumerate(given)
        ]
        return solutions, Sampled(kept=(), num_sampled=0, num_right=0, first=Counts())
    sampled = await sample_solutions(
        lambda index: _sampled(sampler, index, splitter, thinks),
        count=settings.solutions.per_problem,
        balance=settings.solutions.balance,
        max_samples=settings.solutions.most_samples,
    )
    return list(sampled.kept), sampled


async def _estimate(
    shared: Shared,
    sampler: Sampler,
    solutions: Sequence[Solution],
    sampling: Sampling,
) -> tuple[ProblemLabels, ProblemPaths, EstimatorRun]:
    """Roll out what the estimator wants, and label by it; tokens are those of rollouts."""
    policy, settings, learner = shared.policy, shared.settings, shared.learner
    problem, desk = sampler.problem, shared.desk
    knowledge, min_gain = None, None
    if learner is not None:
        knowledge, min_gain = learner.knowledge, learner.min_gain_per_token

    def begin() -> tuple[ProblemPaths, EstimatorRun]:
        table = PrefixTable(
            problem,
            [solution for solution in solutions if solution.steps],
            splitter=settings.split,
            thinks=settings.split.begins_in(policy.decode(sampler.prompt)),
            free_outcomes=not sampling.chosen_by_outcome,
        )
        paths = ProblemPaths(paths=table.paths, answer_class=answer_class(problem.answer))
        estimator = begin_estimator(
            settings.estimator, paths, knowledge=knowledge, min_gain_per_token=min_gain
        )
        return paths, EstimatorRun(estimator, table, policy.decode)

    paths, run = await desk.run(begin)
    judgements = await roll_out(run, sampler, desk=desk, decisions=shared.decisions)
    labeled = labeled_solutions(
        problem,
        sampler.prompt,
        solutions,
        run.table,
        judgements,
        sampling=sampling,
        priors=None if knowledge is None else knowledge.id,
        min_gain_per_token=min_gain,
        truncated=settings.estimator.truncated,
    )
    labels = ProblemLabels(
        labeled=labeled,
        rollouts=run.rollouts,
        num_tokens=sum(rollout.num_tokens for rollout in run.rollouts),
        knowledge=knowledge,
    )
    return labels, paths, run


def _too_long(problem: Problem, given: Sequence[GivenSolution], policy: Policy) -> Fault | None:
    """A text that cannot fit, refused by its length: tokenising it alone would take long."""
    most = policy.max_context * policy.max_token_chars
    if len(problem.text) > most:
        return Fault(
            "prompt_too_long",
            f"its text has {len(problem.text):,} characters, more than could ever be "
            f"{policy.max_context:g} tokens, which the model takes of prompt and solution together",
        )
    for index, solution in enumerate(given):
        if len(solution.text) > most:
            return Fault(
                "solution_too_long",
                f"its solution {index} has {len(solution.text):,} characters, more than could ever "
                f"be {policy.max_context:g} tokens, which the model takes of prompt and solution "
                "together",
            )
    return None


async def _fault(problem: Problem, num_prompt: int, shared: Shared) -> Fault | None:
    """Why no rollout of a problem could be sampled, or graded."""
    max_context = shared.policy.max_context
    if num_prompt >= max_context:
        return Fault(
            "prompt_too_long",
            f"its prompt has {num_prompt} tokens, the model takes {max_context:g} of prompt and "
            "solution together",
        )
    reason = await shared.checker.refuse(problem, shared.desk.run)
    if reason is None:
        return None
    return Fault(
        "unparsed_gold",
        f"the checker {shared.checker.name} does not understand the gold "
        f"{bounded(problem.answer)!r} ({reason})",
    )


async def _sampled(sampler: Sampler, index: int, splitter: StepSplitter, thinks: bool) -> Solution:
    problem, policy, journal = sampler.problem, sampler.policy, sampler.journal
    known = None if journal is None else journal.take_solution(problem.id, index)
    if known is not None and not known.failed:
        return known.solution
    if known is not None:
        completion = known.completion
    else:
        seed = sampling_seed(sampler.run_seed, problem.id, "solution", index)
        completion = await policy.sample(sampler.prompt, (), seed=seed, priority=sampler.priority)
    grade = await sampler.grade(completion)
    steps = splitter.split(completion.ids, completion.text, policy.decode, opened=thinks)
    solution = Solution(
        id=content_id("solution", problem.id, index),
        problem_id=problem.id,
        sample_index=index,
        text=completion.text,
        ids=completion.ids,
        steps=steps,
        finish_reason=completion.finish_reason,
        origin="sampled",
        prediction=grade.prediction,
        outcome=grade.outcome,
    )
    if known is None:
        sampler.on_completion(grade.outcome)
    if journal is not None:
        journal.add_solution(solution, failed=grade.failed)
    return solution


async def _given(
    sampler: Sampler, given: GivenSolution, index: int, splitter: StepSplitter, thinks: bool
) -> Solution:
    problem, policy = sampler.problem, sampler.policy
    ids = policy.encode(given.text)
    if policy.decode(ids) != given.text:
        raise DataError(
            f"problem {problem.id}, solution {index}: the policy's tokenizer does not give the "
            "text back, so its steps have no exact token boundaries. Remove it or mend its text"
        )
    if given.step_ends is None:
        steps = splitter.split(ids, given.text, policy.decode, opened=thinks)
    else:
        steps = split_steps(ids, given.text, given.step_ends, policy.decode)
    completion = Completion(ids=ids, text=given.text, finish_reason="stop")
    grade = await sampler.grade(completion)
    return Solution(
        id=content_id("solution", problem.id, index),
        problem_id=problem.id,
        sample_index=index,
        text=given.text,
        ids=ids,
        steps=steps,
        finish_reason="stop",
        origin="given",
        prediction=grade.prediction,
        outcome=grade.outcome,
    )
