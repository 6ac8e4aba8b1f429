"""Labels problems on one engine, any number of them at a time.

Every problem is a coroutine: it samples or takes its solutions, builds the table of their
distinct prefixes, and feeds an estimator, which says what to roll out. All problems under way
share the engine, so that it batches their rollouts together; no problem, step or block waits
for another. Identical prefixes of a problem are rolled out once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from mclabel.answers import default_checker
from mclabel.data.steps import newline_ends, split_steps
from mclabel.errors import DataError
from mclabel.estimators import (
    ROOT,
    Estimator,
    EstimatorSettings,
    Judgement,
    PosteriorEstimator,
    PriorLearner,
    Priors,
    SolutionPath,
    make_estimator,
)
from mclabel.estimators.posterior.priors import answer_class
from mclabel.labeling.decisions import Decisions
from mclabel.labeling.prefixes import Prefix, PrefixTable
from mclabel.policy import Policy
from mclabel.records import (
    Completion,
    Counts,
    LabeledSolution,
    Outcome,
    Problem,
    Rollout,
    Solution,
    StepLabel,
    Verdict,
)
from mclabel.seeds import content_id, prefix_id, sampling_seed
from mclabel.values import root_value


@dataclass(frozen=True, kw_only=True)
class LabelSettings:
    """How problems are labelled, beside the policy."""

    seed: int
    num_solutions: int
    """Sampled for a problem that has no given solutions."""
    estimator: EstimatorSettings
    pilot: int = 100
    """Solutions labelled before priors are first fitted (`posterior`)."""
    tokens_per_solution: float | None = None
    """Budget that the price of `posterior` is led by."""
    priors: Priors | None = None
    """To begin with, in place of a pilot (`posterior`)."""

    def make_learner(self) -> PriorLearner | None:
        """What learns priors over a run, if the estimator has any."""
        if self.estimator.kind != "posterior":
            return None
        return PriorLearner(
            price=self.estimator.price,
            pilot=self.pilot,
            tokens_per_solution=self.tokens_per_solution,
            priors=self.priors,
        )


@dataclass(frozen=True, kw_only=True)
class GivenSolution:
    """A solution to be labelled that the policy did not sample."""

    text: str
    step_ends: tuple[int, ...] | None = None
    """Character positions where its steps end; None splits it at newlines."""


@dataclass(kw_only=True)
class ProblemLabels:
    """What labelling one problem gives."""

    labeled: list[LabeledSolution]
    rollouts: list[Rollout]
    priors: Priors | None = None
    """What the labels rest on."""


async def label_problem(
    problem: Problem,
    policy: Policy,
    settings: LabelSettings,
    *,
    given: Sequence[GivenSolution] = (),
    learner: PriorLearner | None = None,
    decisions: Decisions | None = None,
    priority: int = 0,
    on_rollout: Callable[[], None] = lambda: None,
) -> ProblemLabels:
    """Label one problem's solutions.

    Args:
        problem: with its gold answer.
        policy: started.
        settings: how.
        given: solutions to label; without any, the policy samples them.
        learner: gives priors and price, and learns from this problem.
        decisions: where problems that share an engine decide together.
        priority: of this problem's completions in the engine, lower first.
        on_rollout: called after every completion.

    Raises:
        EngineError: the engine died.
        DataError: a given solution does not survive the policy's tokenizer.
    """
    prompt = policy.prompt_ids(problem.text)
    if given:
        solutions = [await _given(policy, problem, one, i) for i, one in enumerate(given)]
    else:
        sample = [
            _sample(policy, problem, prompt, settings, i, priority, on_rollout)
            for i in range(settings.num_solutions)
        ]
        solutions = await asyncio.gather(*sample)
    table = PrefixTable(problem, [s for s in solutions if s.steps])
    learner = learner or settings.make_learner()
    chosen, priors, rests_on = settings.estimator, None, None
    if learner is not None:
        priors, chosen = learner.priors, replace(chosen, price=learner.price)
        rests_on = f"{priors.id}@{chosen.price:.6g}"
    kind = answer_class(problem.answer)
    estimator = make_estimator(chosen, table.paths, priors=priors, answer_class=kind)
    judgements, rollouts = await _roll_out(
        problem,
        prompt,
        table,
        policy,
        settings,
        estimator,
        decisions or Decisions(),
        priority,
        on_rollout,
    )
    if learner is not None and isinstance(estimator, PosteriorEstimator):
        tokens = sum(rollout.num_tokens for rollout in rollouts)
        once = estimator.evidence_once()
        learner.add(kind, estimator.evidence(), num_tokens=tokens, once=once)
    siblings = Counts()
    for solution in solutions:
        if solution.origin == "sampled":
            siblings = siblings.plus(solution.outcome, len(solution.ids))
    root = table.prefixes[ROOT].counts
    share = root_value(root, siblings, truncated=settings.estimator.truncated)
    judged = iter(zip(table.paths, judgements, strict=True))
    labeled = []
    for solution in solutions:
        steps: tuple[StepLabel, ...] = ()
        judgement = None
        if solution.steps:
            path, judgement = next(judged)
            steps = _labels(solution, table.prefixes, path, judgement)
        stopped = judgement.root if judgement else None
        labeled.append(
            LabeledSolution(
                problem=problem,
                solution=solution,
                prompt_ids=prompt,
                steps=steps,
                first_error=judgement.first_error if judgement else None,
                root=root,
                siblings=siblings,
                root_value=share if stopped is None else stopped.value,
                posterior=judgement.posterior if judgement else None,
                priors=rests_on,
            )
        )
    return ProblemLabels(labeled=labeled, rollouts=rollouts, priors=priors)


async def _sample(
    policy: Policy,
    problem: Problem,
    prompt: tuple[int, ...],
    settings: LabelSettings,
    index: int,
    priority: int,
    on_rollout: Callable[[], None],
) -> Solution:
    seed = sampling_seed(settings.seed, problem.id, "solution", index)
    completion = await policy.sample(prompt, (), seed=seed, priority=priority)
    on_rollout()
    prediction, outcome = await grade_rollout(completion, problem.answer)
    return Solution(
        id=content_id("solution", problem.id, index),
        problem_id=problem.id,
        sample_index=index,
        text=completion.text,
        ids=completion.ids,
        steps=split_steps(
            completion.ids, completion.text, newline_ends(completion.text), policy.decode
        ),
        finish_reason=completion.finish_reason,
        origin="sampled",
        prediction=prediction,
        outcome=outcome,
    )


async def _given(policy: Policy, problem: Problem, given: GivenSolution, index: int) -> Solution:
    ids = policy.encode(given.text)
    if policy.decode(ids) != given.text:
        raise DataError(
            f"problem {problem.id}, solution {index}: the policy's tokenizer does not give the "
            "text back, so its steps have no exact token boundaries. Remove it or mend its text"
        )
    ends = given.step_ends if given.step_ends is not None else newline_ends(given.text)
    completion = Completion(ids=ids, text=given.text, finish_reason="stop")
    prediction, outcome = await grade_rollout(completion, problem.answer)
    return Solution(
        id=content_id("solution", problem.id, index),
        problem_id=problem.id,
        sample_index=index,
        text=given.text,
        ids=ids,
        steps=split_steps(ids, given.text, ends, policy.decode),
        finish_reason="stop",
        origin="given",
        prediction=prediction,
        outcome=outcome,
    )


async def grade_rollout(
    completion: Completion, gold: str, *, prefix: str = ""
) -> tuple[str | None, Outcome]:
    """The answer of a completion and how it ended. One cut by its length has no answer.

    Leaves the event loop only for an answer that needs the checker's worker.
    """
    if completion.finish_reason == "length":
        return None, Outcome.TRUNCATED
    text = prefix + completion.text
    prediction, grade = await default_checker().grade_completion_async(text, gold)
    return prediction, _OUTCOMES[grade.verdict]


_OUTCOMES: Mapping[Verdict, Outcome] = {
    Verdict.RIGHT: Outcome.RIGHT,
    Verdict.WRONG: Outcome.WRONG,
    Verdict.UNKNOWN: Outcome.UNGRADED,
}


async def _roll_out(
    problem: Problem,
    prompt: tuple[int, ...],
    table: PrefixTable,
    policy: Policy,
    settings: LabelSettings,
    estimator: Estimator,
    decisions: Decisions,
    priority: int,
    on_rollout: Callable[[], None],
) -> tuple[list[Judgement], list[Rollout]]:
    """Do what the estimator wants until it wants no more."""
    rollouts: list[Rollout] = []

    async def roll(number: int) -> tuple[int, Completion, Rollout]:
        prefix = table.prefixes[number]
        index = prefix.num_asked
        prefix.num_asked += 1
        seed = sampling_seed(settings.seed, problem.id, prefix.id, index)
        completion = await policy.sample(prompt, prefix.ids, seed=seed, priority=priority)
        on_rollout()
        prediction, outcome = await grade_rollout(completion, problem.answer, prefix=prefix.text)
        rollout = Rollout(
            problem_id=problem.id,
            prefix_id=prefix.id,
            index=index,
            seed=seed,
            text=completion.text,
            num_tokens=len(completion.ids),
            finish_reason=completion.finish_reason,
            prediction=prediction,
            outcome=outcome,
        )
        return number, completion, rollout

    due: set[asyncio.Task[tuple[int, Completion, Rollout]]] = set()
    try:
        while True:
            wanted = await decisions.wanted(estimator)
            due |= {asyncio.create_task(roll(number)) for number in wanted}
            if not due:
                break
            done, due = await asyncio.wait(due, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                number, completion, rollout = task.result()
                prefix = table.prefixes[number]
                prefix.counts = prefix.counts.plus(rollout.outcome, rollout.num_tokens)
                estimator.tell(
                    table.told(number, completion, rollout.outcome, estimator.follow, policy.decode)
                )
                rollouts.append(rollout)
    finally:
        for task in due:
            task.cancel()
    rollouts.sort(key=lambda r: (r.prefix_id, r.index))
    return estimator.judge([prefix.counts for prefix in table.prefixes]), rollouts


def _labels(
    solution: Solution, prefixes: Sequence[Prefix], path: SolutionPath, judgement: Judgement
) -> tuple[StepLabel, ...]:
    last = prefix_id(solution.problem_id, solution.ids)
    ids = [*(prefixes[number].id for number in path.prefixes), last]
    counts = [*(prefixes[number].counts for number in path.prefixes), Counts()]
    columns = zip(ids, counts, judgement.rules, judgement.hard, judgement.estimates, strict=True)
    return tuple(
        StepLabel(
            prefix_id=identity,
            counts=count,
            rule=rule,
            hard=hard,
            value=estimate.value,
            low=estimate.low,
            high=estimate.high,
            mean=estimate.mean,
        )
        for identity, count, rule, hard, estimate in columns
    )
