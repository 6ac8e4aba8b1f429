"""Rollouts of one problem: sampled or taken from a journal, graded, told to the estimator."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from mclabel.answers import GradeRules, default_checker, extract_answer
from mclabel.estimators import Estimator, Judgement, has_to_think
from mclabel.labeling.decisions import Decisions
from mclabel.labeling.desk import Desk
from mclabel.labeling.journal import BlockJournal
from mclabel.labeling.prefixes import PrefixTable
from mclabel.policy import Policy
from mclabel.records import Completion, FinishReason, Outcome, Problem, Rollout, Verdict
from mclabel.seeds import sampling_seed

MAX_UNDER_WAY = 1024
"""Completions of a problem that are asked for at a time; more would only wait in memory."""


async def roll_out(
    problem: Problem,
    prompt: tuple[int, ...],
    table: PrefixTable,
    policy: Policy,
    estimator: Estimator,
    *,
    run_seed: int,
    priority: int,
    on_completion: Callable[[Outcome], None],
    journal: BlockJournal | None,
    desk: Desk,
    decisions: Decisions,
) -> tuple[list[Judgement], list[Rollout]]:
    """Do what an estimator wants until it wants no more.

    Args:
        problem: with its gold answer.
        prompt: ids of the rendered problem.
        table: of the prefixes; counts are added to it, and prefixes if the estimator follows all.
        policy: started.
        estimator: says which prefixes to roll out.
        run_seed: of the job.
        priority: in the engine, lower first.
        on_completion: called with the outcome of every completion that the engine samples.
        journal: has completions of an earlier attempt, and notes those of this one.
        desk: where grading and the estimator's decisions are done.
        decisions: where problems that share an engine decide together.

    Returns:
        A judgement on each solution, and all rollouts by prefix and index.
    """
    rollouts: list[Rollout] = []

    async def roll(number: int) -> tuple[int, Completion, Rollout]:
        prefix = table.prefixes[number]
        index = prefix.num_asked
        prefix.num_asked += 1
        known = journal.take_rollout(prefix.id, index) if journal is not None else None
        if known is not None:
            return number, known.completion, known.rollout
        seed = sampling_seed(run_seed, problem.id, prefix.id, index)
        completion = await policy.sample(prompt, prefix.ids, seed=seed, priority=priority)
        prediction, outcome = await grade_rollout(
            completion, problem.answer, prefix=prefix.text, desk=desk
        )
        on_completion(outcome)
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
        if journal is not None:
            journal.add_rollout(rollout, completion)
        return number, completion, rollout

    def tell(
        ended: Sequence[tuple[int, Completion, Rollout]], *, all_ended: bool
    ) -> tuple[Sequence[int] | None, list[Judgement] | None]:
        """Tell the estimator, and hear what it wants next, or its judgements at the end.

        Neither, if it has to think.
        """
        for number, completion, rollout in ended:
            prefix = table.prefixes[number]
            prefix.counts = prefix.counts.plus(rollout.outcome, rollout.num_tokens)
            if estimator.follow == "known":
                rollout = table.followed(number, rollout, completion.ids, policy.decode)
            if estimator.follow == "all":
                told = table.grown(number, rollout, completion.ids, policy.decode)
            else:
                told = table.told(number, rollout)
            estimator.tell(told)
            rollouts.append(rollout)
        if has_to_think(estimator):
            return None, None
        wanted = estimator.wanted()
        return wanted, None if wanted or not all_ended else judge()

    def judge() -> list[Judgement]:
        rollouts.sort(key=lambda r: (r.prefix_id, r.index))
        return estimator.judge([prefix.counts for prefix in table.prefixes])

    pending: deque[int] = deque()
    due: set[asyncio.Task[tuple[int, Completion, Rollout]]] = set()
    done: set[asyncio.Task[tuple[int, Completion, Rollout]]] = set()
    try:
        while True:
            ended = [task.result() for task in done]
            wanted, judgements = await desk.run(tell, ended, all_ended=not (due or pending))
            if wanted is None:
                wanted = await decisions.wanted(estimator)
                judgements = None if wanted or due or pending else await desk.run(judge)
            if judgements is not None:
                return judgements, rollouts
            pending.extend(wanted)
            while pending and len(due) < MAX_UNDER_WAY:
                due.add(asyncio.create_task(roll(pending.popleft())))
            done, due = await asyncio.wait(due, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in due:
            task.cancel()
        await asyncio.gather(*due, *done, return_exceptions=True)


async def grade_rollout(
    completion: Completion, gold: str, *, prefix: str = "", desk: Desk
) -> tuple[str | None, Outcome]:
    """The answer of a completion and how it ended. One cut by its length has no answer."""
    if completion.finish_reason == "length":
        return None, Outcome.TRUNCATED
    text = prefix + completion.text
    prediction, grade = await default_checker().grade_completion_async(text, gold, aside=desk.run)
    return prediction, _OUTCOMES[grade.verdict]


def grade_recorded(
    recorded: Sequence[tuple[str, FinishReason, str]], *, rules: GradeRules | None = None
) -> list[tuple[str | None, Outcome]]:
    """The same of completions on record, many at a time.

    Args:
        recorded: whole text, prefix included; how it ended; the gold.
        rules: of the verdicts.
    """
    answers = [None if end == "length" else extract_answer(text) for text, end, _ in recorded]
    pairs = zip(answers, (gold for _, _, gold in recorded), strict=True)
    grades = default_checker().grade_many(pairs, rules=rules)
    return [
        (answer, Outcome.TRUNCATED if end == "length" else _OUTCOMES[grade.verdict])
        for answer, grade, (_, end, _) in zip(answers, grades, recorded, strict=True)
    ]


_OUTCOMES: Mapping[Verdict, Outcome] = {
    Verdict.RIGHT: Outcome.RIGHT,
    Verdict.WRONG: Outcome.WRONG,
    Verdict.UNKNOWN: Outcome.UNGRADED,
}
