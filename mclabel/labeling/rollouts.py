"""Rollouts of one problem: sampled or replayed, graded, and recorded by its estimator."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from mclabel.checkers import Checker, GradeItem
from mclabel.core.errors import BadAnswer
from mclabel.core.records import (
    AUTHOR,
    NO_ROOM,
    Completion,
    Outcome,
    Problem,
    Rollout,
)
from mclabel.core.seeds import sampling_seed
from mclabel.engines import Policy
from mclabel.labeling.completers import naming, spelled
from mclabel.labeling.decisions import DecisionBatcher
from mclabel.labeling.estimators import Judgement, Probe, ProblemEstimator
from mclabel.labeling.grading import CUT, Graded, graded, not_sampled
from mclabel.labeling.inputs import Place
from mclabel.labeling.journal import JournaledRollout, rollout_line
from mclabel.labeling.prefixes import Prefix, PrefixTable
from mclabel.run.cpu_executor import CpuExecutor
from mclabel.run.shards.journal import BlockJournal

_NOTHING = Completion(ids=(), text="", finish_reason="failed")
MAX_RUNNING = 1024
"""Completions of a problem that are asked for at a time; more would only wait in memory."""
MAX_RUNNING_TOKENS = 8_000_000
"""Tokens of the prefixes that they continue, which wait with them. No engine's cache holds more."""
MAX_SPELLED_TOKENS = 2_000_000
"""Tokens of a problem's prefixes that are kept as a completer reads them, those used last."""


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
    journal: BlockJournal | None
    """Holds completions of earlier attempts, and receives those of this one."""
    checker: Checker
    """Grades the completions."""
    executor: CpuExecutor
    """Executor for computations."""
    name: str = AUTHOR
    """Name of the policy among the completers."""
    number: int = 0
    """Its index among them."""
    writes: bool = True
    """True if its model and engine are the policy's, so that prefixes are in its tokens."""
    recorded: Mapping[Place, Rollout] = field(default_factory=dict)
    """Rollouts of the source run, which are not sampled again."""
    _spelled: dict[str, tuple[int, ...]] = field(default_factory=dict, init=False, repr=False)
    _lengths: dict[str, int] = field(default_factory=dict, init=False, repr=False)

    def ids(self, prefix: Prefix) -> tuple[int, ...]:
        """Return the token ids of a prefix in the policy's vocabulary.

        Raises:
            Inexpressible: another model wrote the prefix, and the policy's tokenizer does not
                reproduce its text.
        """
        if self.writes:
            return prefix.ids
        if prefix.id not in self._spelled:
            ids = spelled(self.policy, prefix)
            self._spelled[prefix.id], self._lengths[prefix.id] = ids, len(ids)
            while len(self._spelled) > max(1, MAX_SPELLED_TOKENS // max(1, len(ids))):
                del self._spelled[next(iter(self._spelled))]
            return ids
        return self._spelled[prefix.id]

    def num_tokens(self, prefix: Prefix) -> int:
        """Return the number of `ids`, without building the ids if the policy wrote the prefix."""
        if self.writes:
            return prefix.num_tokens
        if prefix.id not in self._lengths:
            self.ids(prefix)
        return self._lengths[prefix.id]

    def check_room(self, prefixes: Iterable[Prefix]) -> None:
        """Check that the context has room for a completion of each prefix.

        A rollout of no tokens counts as cut, which would be evidence against the step.

        Raises:
            NoRoom: names the length of a prefix that leaves none.
            Inexpressible: as `ids`.
        """
        key = "policy.max_tokens"
        if self.name != AUTHOR:
            key = f"max_tokens of the completer {self.name}"
        for prefix in prefixes:
            length = self.num_tokens(prefix)
            if self.policy.room(len(self.prompt), length) < 1:
                raise NoRoom(
                    f"a step of one of its solutions ends after {length:,} tokens, which leaves "
                    f"no room for a completion. Raise {key}, up to the limit of the model"
                )

    def lacks_room(self, prefix: Prefix) -> bool:
        """Return whether a prefix leaves less room than is usually needed from there.

        Most of its rollouts would be cut, and count as wrong, whatever the step is worth. Nothing
        but the solutions decides it, so that an interrupted run goes on as it would have.

        Raises:
            Inexpressible: as `ids`.
        """
        if not prefix.need:
            return False
        length = self.num_tokens(prefix)
        need = prefix.need * length / prefix.num_tokens  # in the tokens of this policy
        return self.policy.room(len(self.prompt), length) < need

    async def roll_out(self, prefix: Prefix) -> tuple[Completion | None, Rollout]:
        """Sample one more rollout from a prefix. It has no verdict if the context lacks room."""
        index = prefix.num_asked[self.number]
        prefix.num_asked[self.number] += 1
        if (taken := self.recorded.get((prefix.id, self.name, index))) is not None:
            return None, taken
        recorded: JournaledRollout | None = None
        if self.journal is not None:
            recorded = self.journal.take(("rollout", self.name, prefix.id, index))
        if recorded is not None and not recorded.failed:
            return recorded.completion, recorded.rollout
        seed = sampling_seed(
            self.run_seed,
            self.problem.id,
            prefix.id,
            index,
            completer="" if self.name == AUTHOR else self.name,
        )
        why, withheld = None, recorded is None and self.lacks_room(prefix)
        if recorded is not None:
            completion = recorded.completion
        elif withheld:
            completion, why = _NOTHING, NO_ROOM
        else:
            completion, why = await self.sample(self.ids(prefix), seed=seed)
        grade = await self.grade(completion, prefix.text) if why is None else not_sampled(why)
        if recorded is None and not withheld:
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
            completer=self.name,
        )
        if self.journal is not None and why is None:
            line = partial(rollout_line, rollout, completion.ids, failed=grade.failed)
            self.journal.add(line)
        return completion, rollout

    async def sample(self, prefix: tuple[int, ...], *, seed: int) -> tuple[Completion, str | None]:
        """Sample a completion. Return it with the reason why the engine failed, or None.

        Raises:
            EngineError: the engine died, or gives none at all.
        """
        try:
            with naming(self.name):
                completion = await self.policy.sample(
                    self.prompt, prefix, seed=seed, priority=self.priority
                )
        except BadAnswer as error:
            return _NOTHING, str(error)
        return completion, None

    async def grade(self, completion: Completion, prefix: str = "") -> Graded:
        """Return how a completion ended, and its answer. One cut by its length has none.

        Raises:
            CheckerError: the checker fails on all that it grades.
        """
        if completion.finish_reason == "length":
            return CUT
        item = GradeItem(problem=self.problem, completion=prefix + completion.text)
        (grade,) = await self.checker.grade([item], self.executor.run)
        return graded(grade)


Ended = tuple[Probe, Completion | None, Rollout]
"""The request, its completion and the rollout; no completion if it was read from a shard."""


class EstimatorRun:
    """An estimator and the table of prefixes that its rollouts are recorded in."""

    def __init__(
        self,
        checked: ProblemEstimator,
        table: PrefixTable,
        policies: Sequence[Policy | None] | None,
    ) -> None:
        """Start without rollouts.

        Args:
            checked: estimator of the problem.
            table: table of its prefixes; counts are added to it, and prefixes if the estimator
                follows all.
            policies: the completers, None for one that does not go on with the solution; None for
                all where the way of each rollout is on record.
        """
        self.checked, self.table, self._policies = checked, table, policies
        self.rollouts: list[Rollout] = []
        """Those that were recorded."""

    def record(self, ended: Iterable[Ended], *, asked: bool = True) -> None:
        """Count rollouts and give them to the estimator.

        Args:
            ended: the rollouts.
            asked: whether the estimator asked for them.
        """
        follow = self.checked.follow
        for (number, who), completion, rollout in ended:
            counts = self.table.prefixes[number].counts
            counts[who] = counts[who].plus(rollout.outcome, rollout.num_tokens)
            policy = None if self._policies is None else self._policies[who]
            ids: Sequence[int] | None = None if completion is None else completion.ids
            on_record = follow == "known" and rollout.step_ends is not None
            if ids is None and policy is not None and follow != "nothing" and not on_record:
                ids = policy.encode(rollout.text)
            if ids is not None and policy is not None and follow == "known":
                rollout = self.table.followed(number, rollout, ids, policy.decode)
            if ids is not None and policy is not None and follow == "all":
                received = self.table.grown(number, rollout, tuple(ids), policy.decode)
            else:
                received = self.table.received(number, rollout)
            self.checked.record(received if asked else replace(received, asked=False))
            self.rollouts.append(rollout)

    def take_over(self, recorded: Mapping[Place, Rollout]) -> None:
        """Give the estimator recorded rollouts that it did not request, if it accepts them."""
        if not self.checked.takes_all:
            return
        numbers = {prefix.id: number for number, prefix in enumerate(self.table.prefixes)}
        whose = self.table.completers
        taken = [
            (Probe(numbers[prefix], whose[name]), None, recorded[prefix, name, index])
            for prefix, name, index in sorted(recorded)
            if prefix in numbers and name in whose
        ]
        for probe, _, rollout in taken:
            asked = self.table.prefixes[probe.prefix].num_asked
            asked[probe.completer] = max(asked[probe.completer], rollout.index + 1)
        self.record(taken, asked=False)

    def judge(self) -> list[Judgement]:
        """Return the labels, once no rollout is requested or outstanding."""
        order = self.table.completers
        self.rollouts.sort(key=lambda r: (r.prefix_id, order[r.completer], r.index))
        by_prefix = [prefix.counts for prefix in self.table.prefixes]
        return self.checked.judge(list(zip(*by_prefix, strict=True)))


async def roll_out(
    run: EstimatorRun,
    samplers: Sequence[Sampler],
    *,
    executor: CpuExecutor,
    decisions: DecisionBatcher,
) -> list[Judgement]:
    """Sample the rollouts that an estimator requests until it requests no more.

    Args:
        run: with the estimator; its table and rollouts grow.
        samplers: samplers of the problem, one a completer.
        executor: where the estimator's decisions are computed.
        decisions: where problems that share an engine decide together.

    Returns:
        A judgement on each solution.

    Raises:
        NoRoom: rollouts are wanted, and one of the solutions' prefixes leaves none for them.
        Inexpressible: rollouts are wanted of a completer whose tokenizer cannot have a prefix.
    """
    checked, prefixes = run.checked, run.table.prefixes
    is_checked = False

    async def one(probe: Probe) -> Ended:
        return (probe, *await samplers[probe.completer].roll_out(prefixes[probe.prefix]))

    def advance(
        ended: Sequence[Ended], *, is_last: bool
    ) -> tuple[Sequence[Probe] | None, list[Judgement] | None]:
        """Record the rollouts, then return the next requests, or the judgements at the end.

        Neither, if the decision is due to be made with those of other problems.
        """
        run.record(ended)
        if checked.is_due:
            return None, None
        wanted = checked.wanted(len(prefixes))
        return wanted, None if wanted or not is_last else run.judge()

    pending: deque[Probe] = deque()
    longest = 1
    running: set[asyncio.Task[Ended]] = set()
    done: set[asyncio.Task[Ended]] = set()
    with decisions.at_work():
        await executor.run(run.take_over, samplers[0].recorded)
        try:
            while True:
                ended = [task.result() for task in done]
                wanted, judgements = await executor.run(
                    advance, ended, is_last=not (running or pending)
                )
                if wanted is None:
                    wanted = await decisions.wanted(checked, len(prefixes))
                    is_over = not (wanted or running or pending)
                    judgements = await executor.run(run.judge) if is_over else None
                if judgements is not None:
                    return judgements
                if wanted and not is_checked:
                    for sampler in samplers:
                        sampler.check_room(prefixes)
                    is_checked = True
                pending.extend(wanted)
                longest = max([longest, *(prefixes[probe.prefix].num_tokens for probe in wanted)])
                most = min(MAX_RUNNING, max(1, MAX_RUNNING_TOKENS // longest))
                while pending and len(running) < most:
                    running.add(asyncio.create_task(one(pending.popleft())))
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, *done, return_exceptions=True)


def replay(run: EstimatorRun, recorded: dict[Place, Rollout]) -> int:
    """Ask an estimator again, and give it recorded rollouts in place of sampled ones.

    One that takes all is given them before it is asked.

    Args:
        run: with the estimator; its table and rollouts grow.
        recorded: rollouts by prefix id, completer and index; those that are used are taken out.

    Returns:
        How many rollouts were wanted and are not on record.
    """
    checked, prefixes, names = run.checked, run.table.prefixes, list(run.table.completers)
    num_missing = 0
    run.take_over(recorded)
    while wanted := checked.wanted(len(prefixes)):
        for probe in wanted:
            prefix, who = prefixes[probe.prefix], probe.completer
            rollout = recorded.pop((prefix.id, names[who], prefix.num_asked[who]), None)
            prefix.num_asked[who] += 1
            if rollout is None:
                num_missing += 1
            else:
                run.record([(probe, None, rollout)])
    return num_missing
