"""Labels problems on one engine, any number of them at a time.

Every problem is a coroutine: it samples or takes its solutions, builds the table of their
distinct prefixes, and feeds an estimator, which says what to roll out. All problems under way
share the engine, so that it batches their rollouts together; no problem, step or block waits
for another. Identical prefixes of a problem are rolled out once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mclabel.answers import PASSING, default_checker
from mclabel.data.rejects import bounded
from mclabel.data.rows import Fault
from mclabel.data.steps import StepRules, split_steps
from mclabel.errors import DataError
from mclabel.estimators import (
    Estimator,
    EstimatorSettings,
    PosteriorEstimator,
    PriorLearner,
    Priors,
    make_estimator,
)
from mclabel.estimators.posterior.priors import answer_class
from mclabel.labeling.decisions import Decisions
from mclabel.labeling.desk import Desk
from mclabel.labeling.journal import BlockJournal
from mclabel.labeling.labeled import Sampling, labeled_solutions
from mclabel.labeling.prefixes import PrefixTable
from mclabel.labeling.rollouts import grade_rollout, roll_out
from mclabel.labeling.sampling import Sampled, sample_solutions
from mclabel.policy import Policy
from mclabel.records import (
    Completion,
    Counts,
    LabeledSolution,
    Outcome,
    Problem,
    Rollout,
    Solution,
)
from mclabel.seeds import content_id, sampling_seed


@dataclass(frozen=True, kw_only=True)
class LabelSettings:
    """How problems are labelled, beside the policy."""

    seed: int
    num_solutions: int
    """Sampled for a problem that has no given solutions."""
    estimator: EstimatorSettings
    balance: int | None = None
    """Right and wrong solutions kept of a problem; None keeps all."""
    max_samples: int | None = None
    """Of a problem, to be balanced."""
    split: StepRules = field(default_factory=StepRules)
    pilot: int = 100
    """Solutions labelled before priors are first fitted (`posterior`)."""
    tokens_per_solution: float | None = None
    """Budget that the price of `posterior` is led by."""
    priors: Priors | None = None
    """To begin with, in place of a pilot (`posterior`)."""
    strict: bool = False
    """A problem that cannot be labelled is an error."""

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
    """Character positions where its steps end; None splits it as sampled ones are."""


@dataclass(kw_only=True)
class ProblemLabels:
    """What labelling one problem gives."""

    labeled: list[LabeledSolution]
    rollouts: list[Rollout]
    num_tokens: int = 0
    """Of all solutions that were sampled, kept or not, and of all rollouts."""
    priors: Priors | None = None
    """What the labels rest on."""
    dropped: Mapping[str, int] | None = None
    """Of a problem without labels, as no right and wrong solutions could be kept: how many were
    sampled, and how many were right."""
    set_aside: Fault | None = None
    """Why the problem cannot be labelled."""


async def label_problem(
    problem: Problem,
    policy: Policy,
    settings: LabelSettings,
    *,
    given: Sequence[GivenSolution] = (),
    learner: PriorLearner | None = None,
    decisions: Decisions | None = None,
    priority: int = 0,
    on_completion: Callable[[Outcome], None] = lambda outcome: None,
    journal: BlockJournal | None = None,
    desk: Desk | None = None,
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
        on_completion: called with the outcome of every completion that the engine samples.
        journal: has completions of an earlier attempt, and notes those of this one.
        desk: where grading and the estimator's decisions are done; None is one of its own.

    Raises:
        EngineError: the engine died.
        DataError: a given solution does not survive the policy's tokenizer; if strict, the problem
            cannot be labelled.
    """
    desk = desk or Desk()
    prompt: tuple[int, ...] = ()
    if (fault := _too_long(problem, given, policy)) is None:
        prompt = policy.prompt_ids(problem.text)
        fault = await _fault(problem, len(prompt), policy.max_context, desk)
    if fault is not None:
        if settings.strict:
            raise DataError(f"problem {problem.id}: {fault.detail}")
        return ProblemLabels(labeled=[], rollouts=[], set_aside=fault)
    thinks = settings.split.begins_in(policy.decode(prompt))

    async def sample(index: int) -> Solution:
        known = journal.take_solution(problem.id, index) if journal is not None else None
        if known is not None:
            return known
        solution = await _sample(policy, problem, prompt, settings, index, thinks, priority, desk)
        on_completion(solution.outcome)
        if journal is not None:
            journal.add_solution(solution)
        return solution

    if given:
        rules = settings.split
        solutions = [
            await _given(policy, problem, one, i, rules, thinks, desk)
            for i, one in enumerate(given)
        ]
        sampled = Sampled(kept=(), num_sampled=0, num_right=0, first=Counts())
    else:
        sampled = await sample_solutions(
            sample,
            count=settings.num_solutions,
            balance=settings.balance,
            max_samples=settings.max_samples,
        )
        solutions = list(sampled.kept)
        if not solutions:
            counts = {"num_sampled": sampled.num_sampled, "num_right": sampled.num_right}
            return ProblemLabels(
                labeled=[], rollouts=[], num_tokens=sampled.num_tokens, dropped=counts
            )
    chosen_by_outcome = settings.balance is not None and not given
    learner = learner or settings.make_learner()
    chosen, priors, rests_on = settings.estimator, None, None
    if learner is not None:
        price = f"{learner.price:.6g}"  # used as it is written down
        priors, chosen = learner.priors, replace(chosen, price=float(price))
        rests_on = f"{priors.id}@{price}"
    kind = answer_class(problem.answer)

    def begin() -> tuple[PrefixTable, Estimator]:
        table = PrefixTable(
            problem,
            [s for s in solutions if s.steps],
            rules=settings.split,
            thinks=thinks,
            free_outcomes=not chosen_by_outcome,
        )
        return table, make_estimator(chosen, table.paths, priors=priors, answer_class=kind)

    table, estimator = await desk.run(begin)
    judgements, rollouts = await roll_out(
        problem,
        prompt,
        table,
        policy,
        estimator,
        run_seed=settings.seed,
        priority=priority,
        on_completion=on_completion,
        journal=journal,
        desk=desk,
        decisions=decisions or Decisions(desk),
    )
    if learner is not None and isinstance(estimator, PosteriorEstimator):
        tokens = sum(rollout.num_tokens for rollout in rollouts)
        evidence, once = await desk.run(lambda e: (e.evidence(), e.evidence_once()), estimator)
        learner.add(kind, evidence, num_tokens=tokens, once=once)
    labeled = labeled_solutions(
        problem,
        prompt,
        solutions,
        table,
        judgements,
        sampling=Sampling(
            siblings=sampled.first,
            num_sampled=sampled.num_sampled,
            num_sampled_right=sampled.num_right,
            chosen_by_outcome=chosen_by_outcome,
        ),
        rests_on=rests_on,
        truncated=settings.estimator.truncated,
    )
    return ProblemLabels(
        labeled=labeled,
        rollouts=rollouts,
        num_tokens=sampled.num_tokens + sum(rollout.num_tokens for rollout in rollouts),
        priors=priors,
    )


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


async def _fault(problem: Problem, num_prompt: int, max_context: float, desk: Desk) -> Fault | None:
    """Why no rollout of a problem could be sampled, or graded."""
    if num_prompt >= max_context:
        return Fault(
            "prompt_too_long",
            f"its prompt has {num_prompt} tokens, the model takes {max_context:g} of prompt and "
            "solution together",
        )
    reason = await default_checker().unparsed_gold_async(problem.answer, aside=desk.run)
    if reason is None or reason in PASSING:
        return None
    return Fault(
        "unparsed_gold",
        f"the answer checker does not understand the gold {bounded(problem.answer)!r} ({reason})",
    )


async def _sample(
    policy: Policy,
    problem: Problem,
    prompt: tuple[int, ...],
    settings: LabelSettings,
    index: int,
    thinks: bool,
    priority: int,
    desk: Desk,
) -> Solution:
    seed = sampling_seed(settings.seed, problem.id, "solution", index)
    completion = await policy.sample(prompt, (), seed=seed, priority=priority)
    prediction, outcome = await grade_rollout(completion, problem.answer, desk=desk)
    return Solution(
        id=content_id("solution", problem.id, index),
        problem_id=problem.id,
        sample_index=index,
        text=completion.text,
        ids=completion.ids,
        steps=settings.split.split(completion.ids, completion.text, policy.decode, opened=thinks),
        finish_reason=completion.finish_reason,
        origin="sampled",
        prediction=prediction,
        outcome=outcome,
    )


async def _given(
    policy: Policy,
    problem: Problem,
    given: GivenSolution,
    index: int,
    rules: StepRules,
    thinks: bool,
    desk: Desk,
) -> Solution:
    ids = policy.encode(given.text)
    if policy.decode(ids) != given.text:
        raise DataError(
            f"problem {problem.id}, solution {index}: the policy's tokenizer does not give the "
            "text back, so its steps have no exact token boundaries. Remove it or mend its text"
        )
    if given.step_ends is None:
        steps = rules.split(ids, given.text, policy.decode, opened=thinks)
    else:
        steps = split_steps(ids, given.text, given.step_ends, policy.decode)
    completion = Completion(ids=ids, text=given.text, finish_reason="stop")
    prediction, outcome = await grade_rollout(completion, problem.answer, desk=desk)
    return Solution(
        id=content_id("solution", problem.id, index),
        problem_id=problem.id,
        sample_index=index,
        text=given.text,
        ids=ids,
        steps=steps,
        finish_reason="stop",
        origin="given",
        prediction=prediction,
        outcome=outcome,
    )
