"""Labels problems on one engine, any number of them at a time.

Every problem is a coroutine: it samples or takes its solutions, builds the table of their
distinct prefixes, and feeds an estimator, which says what to roll out. All problems under way
share the engine, so that it batches their rollouts together; no problem, step or block waits
for another. Identical prefixes of a problem are rolled out once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mclabel.answers import default_checker
from mclabel.data.steps import newline_ends, split_steps
from mclabel.errors import DataError
from mclabel.estimators import ROOT, EstimatorKind, Judgement, SolutionPath, make_estimator
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
from mclabel.values import TruncatedPolicy, clopper_pearson, num_trials, value


@dataclass(frozen=True, kw_only=True)
class LabelSettings:
    """How problems are labelled, beside the policy."""

    seed: int
    num_solutions: int
    """Sampled for a problem that has no given solutions."""
    estimator: EstimatorKind
    rollouts: int
    root_rollouts: int = 0
    batch: int = 4
    truncated: TruncatedPolicy = "wrong"


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


@dataclass
class _Prefix:
    """One distinct prefix of a problem's solutions."""

    id: str
    ids: tuple[int, ...]
    text: str
    counts: Counts = field(default_factory=Counts)
    num_asked: int = 0


async def label_problem(
    problem: Problem,
    policy: Policy,
    settings: LabelSettings,
    *,
    given: Sequence[GivenSolution] = (),
    priority: int = 0,
    on_rollout: Callable[[], None] = lambda: None,
) -> ProblemLabels:
    """Label one problem's solutions.

    Args:
        problem: with its gold answer.
        policy: started.
        settings: how.
        given: solutions to label; without any, the policy samples them.
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
    prefixes, paths = _prefix_table(problem, [s for s in solutions if s.steps])
    judgements, rollouts = await _roll_out(
        problem, prompt, prefixes, paths, policy, settings, priority, on_rollout
    )
    siblings = Counts()
    for solution in solutions:
        if solution.origin == "sampled":
            siblings = siblings.plus(solution.outcome, len(solution.ids))
    judged = iter(zip(paths, judgements, strict=True))
    labeled = []
    for solution in solutions:
        steps: tuple[StepLabel, ...] = ()
        first_error = None
        if solution.steps:
            path, judgement = next(judged)
            steps = _labels(solution, prefixes, path, judgement, settings.truncated)
            first_error = judgement.first_error
        labeled.append(
            LabeledSolution(
                problem=problem,
                solution=solution,
                prompt_ids=prompt,
                steps=steps,
                first_error=first_error,
                root=prefixes[ROOT].counts,
                siblings=siblings,
            )
        )
    return ProblemLabels(labeled=labeled, rollouts=rollouts)


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


def _prefix_table(
    problem: Problem, solutions: Sequence[Solution]
) -> tuple[list[_Prefix], list[SolutionPath]]:
    """The distinct prefixes, the bare problem first, and each solution's way through them."""
    index_of: dict[tuple[int, ...], int] = {(): ROOT}
    prefixes = [_Prefix(id=prefix_id(problem.id, ()), ids=(), text="")]
    paths = []
    for solution in solutions:
        path, text = [], ""
        for step in solution.steps[:-1]:
            ids, text = solution.ids[: step.end], text + step.text
            if ids not in index_of:
                index_of[ids] = len(prefixes)
                prefixes.append(_Prefix(id=prefix_id(problem.id, ids), ids=ids, text=text))
            path.append(index_of[ids])
        paths.append(SolutionPath(prefixes=tuple(path), outcome=solution.outcome))
    return prefixes, paths


async def _roll_out(
    problem: Problem,
    prompt: tuple[int, ...],
    prefixes: list[_Prefix],
    paths: Sequence[SolutionPath],
    policy: Policy,
    settings: LabelSettings,
    priority: int,
    on_rollout: Callable[[], None],
) -> tuple[list[Judgement], list[Rollout]]:
    """Do what the estimator wants until it wants no more."""
    estimator = make_estimator(
        settings.estimator,
        paths,
        rollouts=settings.rollouts,
        root_rollouts=settings.root_rollouts,
        batch=settings.batch,
        truncated=settings.truncated,
    )
    rollouts: list[Rollout] = []

    async def roll(number: int) -> tuple[int, Rollout]:
        prefix = prefixes[number]
        index = prefix.num_asked
        prefix.num_asked += 1
        seed = sampling_seed(settings.seed, problem.id, prefix.id, index)
        completion = await policy.sample(prompt, prefix.ids, seed=seed, priority=priority)
        on_rollout()
        prediction, outcome = await grade_rollout(completion, problem.answer, prefix=prefix.text)
        return number, Rollout(
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

    due: set[asyncio.Task[tuple[int, Rollout]]] = set()
    try:
        while True:
            due |= {asyncio.create_task(roll(number)) for number in estimator.wanted()}
            if not due:
                break
            done, due = await asyncio.wait(due, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                number, rollout = task.result()
                prefix = prefixes[number]
                prefix.counts = prefix.counts.plus(rollout.outcome, rollout.num_tokens)
                estimator.tell(number, rollout.outcome)
                rollouts.append(rollout)
    finally:
        for task in due:
            task.cancel()
    rollouts.sort(key=lambda r: (r.prefix_id, r.index))
    return estimator.judge([prefix.counts for prefix in prefixes]), rollouts


def _labels(
    solution: Solution,
    prefixes: Sequence[_Prefix],
    path: SolutionPath,
    judgement: Judgement,
    truncated: TruncatedPolicy,
) -> tuple[StepLabel, ...]:
    labels = []
    for number, hard, rule in zip(path.prefixes, judgement.hard, judgement.rules, strict=False):
        counts = prefixes[number].counts
        trials = num_trials(counts, truncated=truncated) if rule == "fixed" else 0
        low, high = clopper_pearson(counts.num_right, trials) if trials else (None, None)
        labels.append(
            StepLabel(
                prefix_id=prefixes[number].id,
                counts=counts,
                rule=rule,
                hard=hard,
                value=value(counts, truncated=truncated) if rule == "fixed" else None,
                low=low,
                high=high,
            )
        )
    last = judgement.hard[-1]
    labels.append(
        StepLabel(
            prefix_id=prefix_id(solution.problem_id, solution.ids),
            counts=Counts(),
            rule="outcome",
            hard=last,
            value=None if last is None else float(last),
            low=None,
            high=None,
        )
    )
    return tuple(labels)
