"""Rollouts of one problem: sampled or replayed, graded, and recorded by its estimator."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mclabel.checkers import Checker, GradeItem
from mclabel.engines import Policy
from mclabel.estimators import CheckedEstimator, Judgement
from mclabel.labeling.decisions import Decisions
from mclabel.labeling.grading import CUT, Graded, graded
from mclabel.labeling.journal import LabelJournal
from mclabel.labeling.prefixes import Decode, Prefix, PrefixTable
from mclabel.records import Completion, Outcome, Problem, Rollout
from mclabel.seeds import sampling_seed
from mclabel.work.desk import Desk

MAX_RUNNING = 1024
"""Completions of a problem that are asked for at a time; more would only wait in memory."""


class NoRoom(Exception):
    """A rollout is wanted from a prefix that fills all that the policy may write."""


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """Samples and grades completions of one problem, or takes them from a journal."""

    problem: Problem
    prompt: tuple[int, ...]
    """Ids of the rendered problem."""
    policy: Policy
    """Started."""
    run_seed: int
    priority: int
    """In the engine, lower first."""
    on_completion: Callable[[Outcome], None]
    """Called with the outcome of every completion that the engine samples."""
    journal: LabelJournal | None
    """Holds completions of earlier attempts, and receives those of this one."""
    checker: Checker
    """Grades the completions."""
    desk: Desk
    """Where what computes is run."""

    def check_room(self, prefixes: Iterable[Prefix]) -> None:
        """See that a completion may follow each prefix.

        A rollout of no tokens counts as cut, which would be evidence against the step.

        Raises:
            NoRoom: names the length of a prefix that leaves none.
        """
        for prefix in prefixes:
            if self.policy.room(len(self.prompt), len(prefix.ids)) < 1:
                raise NoRoom(
                    f"a step of its solutions ends after {len(prefix.ids):,} tokens, and more than "
                    "so many are not sampled, so that no completion could follow it. Raise "
                    "policy.max_tokens, up to what the model takes"
                )

    async def roll_out(self, prefix: Prefix) -> tuple[Completion, Rollout]:
        """One more rollout from a prefix."""
        index = prefix.num_asked
        prefix.num_asked += 1
        known = None if self.journal is None else self.journal.take_rollout(prefix.id, index)
        if known is not None and not known.failed:
            return known.completion, known.rollout
        seed = sampling_seed(self.run_seed, self.problem.id, prefix.id, index)
        if known is not None:
            completion = known.completion
        else:
            completion = await self.policy.sample(
                self.prompt, prefix.ids, seed=seed, priority=self.priority
            )
        grade = await self.grade(completion, prefix.text)
        if known is None:
            self.on_completion(grade.outcome)
        rollout = Rollout(
            problem_id=self.problem.id,
            prefix_id=prefix.id,
            index=index,
            seed=seed,
            text=completion.text,
            num_tokens=len(completion.ids),
            finish_reason=completion.finish_reason,
            prediction=grade.prediction,
            outcome=grade.outcome,
            reason=grade.reason,
        )
        if self.journal is not None:
            self.journal.add_rollout(rollout, completion, failed=grade.failed)
        return completion, rollout

    async def grade(self, completion: Completion, prefix: str = "") -> Graded:
        """How a completion ended, and its answer. One cut by its length has none.

        Raises:
            CheckerError: the checker fails on all that it grades.
        """
        if completion.finish_reason == "length":
            return CUT
        item = GradeItem(problem=self.problem, completion=prefix + completion.text)
        (grade,) = await self.checker.grade([item], self.desk.run)
        return graded(grade)


Ended = tuple[int, Completion | None, Rollout]
"""Index of a prefix, and one rollout from it; no completion where it was read from a shard."""


class EstimatorRun:
    """An estimator and the table of prefixes that its rollouts are recorded in."""

    def __init__(
        self, checked: CheckedEstimator, table: PrefixTable, decode: Decode | None
    ) -> None:
        """Begin.

        Args:
            checked: estimator of the problem.
            table: of its prefixes; counts are added to it, and prefixes if the estimator follows
                all.
            decode: of the policy's tokens; None where the way of each rollout is on record.
        """
        self.checked, self.table, self._decode = checked, table, decode
        self.rollouts: list[Rollout] = []
        """Those that were recorded."""

    def record(self, ended: Iterable[Ended]) -> None:
        """Count rollouts and give them to the estimator."""
        follow, decode = self.checked.estimator.follow, self._decode
        for number, completion, rollout in ended:
            prefix = self.table.prefixes[number]
            prefix.counts = prefix.counts.plus(rollout.outcome, rollout.num_tokens)
            if completion is not None and decode is not None and follow == "known":
                rollout = self.table.followed(number, rollout, completion.ids, decode)
            if completion is not None and decode is not None and follow == "all":
                received = self.table.grown(number, rollout, completion.ids, decode)
            else:
                received = self.table.received(number, rollout)
            self.checked.record(received)
            self.rollouts.append(rollout)

    def judge(self) -> list[Judgement]:
        """The labels, once nothing is wanted and nothing due."""
        self.rollouts.sort(key=lambda r: (r.prefix_id, r.index))
        return self.checked.judge([prefix.counts for prefix in self.table.prefixes])


async def roll_out(
    run: EstimatorRun, sampler: Sampler, *, desk: Desk, decisions: Decisions
) -> list[Judgement]:
    """Do what an estimator wants until it wants no more.

    Args:
        run: with the estimator; its table and rollouts grow.
        sampler: of the problem.
        desk: where the estimator's decisions are computed.
        decisions: where problems that share an engine decide together.

    Returns:
        A judgement on each solution.

    Raises:
        NoRoom: rollouts are wanted, and one of the solutions' prefixes leaves none for them.
    """
    checked, prefixes = run.checked, run.table.prefixes
    is_checked = False

    async def one(number: int) -> Ended:
        return (number, *await sampler.roll_out(prefixes[number]))

    def advance(
        ended: Sequence[Ended], *, is_last: bool
    ) -> tuple[Sequence[int] | None, list[Judgement] | None]:
        """Record, then give what is wanted next, or the judgements at the end.

        Neither, if the decision is due to be made with those of other problems.
        """
        run.record(ended)
        if checked.is_due:
            return None, None
        wanted = checked.wanted(len(prefixes))
        return wanted, None if wanted or not is_last else run.judge()

    pending: deque[int] = deque()
    running: set[asyncio.Task[Ended]] = set()
    done: set[asyncio.Task[Ended]] = set()
    try:
        while True:
            ended = [task.result() for task in done]
            wanted, judgements = await desk.run(advance, ended, is_last=not (running or pending))
            if wanted is None:
                wanted = await decisions.wanted(checked, len(prefixes))
                is_over = not (wanted or running or pending)
                judgements = await desk.run(run.judge) if is_over else None
            if judgements is not None:
                return judgements
            if wanted and not is_checked:
                sampler.check_room(prefixes)
                is_checked = True
            pending.extend(wanted)
            while pending and len(running) < MAX_RUNNING:
                running.add(asyncio.create_task(one(pending.popleft())))
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, *done, return_exceptions=True)


def replay(run: EstimatorRun, recorded: dict[tuple[str, int], Rollout]) -> int:
    """Ask an estimator again, and give it recorded rollouts in place of sampled ones.

    Args:
        run: with the estimator; its table and rollouts grow.
        recorded: rollouts by prefix id and index; those that are used are taken out.

    Returns:
        How many rollouts were wanted and are not on record.
    """
    checked, prefixes = run.checked, run.table.prefixes
    num_missing = 0
    while wanted := checked.wanted(len(prefixes)):
        for number in wanted:
            prefix = prefixes[number]
            rollout = recorded.pop((prefix.id, prefix.num_asked), None)
            prefix.num_asked += 1
            if rollout is None:
                num_missing += 1
            else:
                run.record([(number, None, rollout)])
    if checked.estimator.takes_all:
        numbers = {prefix.id: number for number, prefix in enumerate(prefixes)}
        rest = [(numbers[r.prefix_id], None, r) for _, r in sorted(recorded.items())]
        run.record(rest)
    return num_missing
