"""Samples or replays the rollouts of one problem, grades them, and passes them to its estimator.

The author is the model that wrote the solutions; completers are the models that sample rollouts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from mclabel.checkers import Checker, GradeItem
from mclabel.core.errors import UnusableResponse
from mclabel.core.records import (
    AUTHOR,
    NO_ROOM,
    Completion,
    Outcome,
    Problem,
    Rollout,
)
from mclabel.core.seeds import derive_sampling_seed
from mclabel.engines import Policy
from mclabel.labeling.completers import add_completer_name_to_errors, encode_prefix
from mclabel.labeling.decisions import DecisionBatcher
from mclabel.labeling.estimators import Judgement, Probe, ProblemEstimator
from mclabel.labeling.grading import (
    TRUNCATED_GRADE,
    GradeRecord,
    make_failed_grade_record,
    to_grade_record,
)
from mclabel.labeling.inputs import RolloutKey
from mclabel.labeling.journal import JournaledRollout, make_rollout_line
from mclabel.labeling.prefixes import Prefix, PrefixTable
from mclabel.run.cpu_executor import CpuExecutor
from mclabel.run.shards.journal import BlockJournal

_NO_COMPLETION = Completion(ids=(), text="", finish_reason="failed")
"""Placeholder for a completion that the engine did not sample."""
MAX_RUNNING = 1024
"""Maximum number of concurrent completions of a problem. More requests would only use memory."""
MAX_RUNNING_TOKENS = 8_000_000
"""Maximum number of prefix tokens of all concurrent completions of a problem. No engine's cache
holds more."""
MAX_CACHED_PREFIX_TOKENS = 2_000_000
"""Approximate maximum number of tokens of the prefixes whose token ids a `Sampler` caches. The
prefixes that were encoded first are dropped first."""


class NoContextRoom(Exception):
    """Error if a rollout is requested from a prefix that leaves no room in the context for a
    completion.
    """


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """Samples and grades completions of one problem, or takes them from a journal."""

    problem: Problem
    prompt: tuple[int, ...]
    """Token ids of the rendered problem."""
    policy: Policy
    """Policy that samples, already started."""
    run_seed: int
    """Random seed of the run."""
    priority: int
    """Priority of the completions in the engine; lower values run first."""
    on_completion: Callable[[Outcome], None]
    """Called with the outcome of every completion that the engine samples."""
    journal: BlockJournal | None
    """Journal that holds the completions of earlier attempts and stores those of this one; None
    for no journal."""
    checker: Checker
    """Checker that grades the completions."""
    executor: CpuExecutor
    """Executor that runs the checker's computations off the event loop."""
    completer_name: str = AUTHOR
    """Name of the sampling model, as labels record it."""
    completer_index: int = 0
    """Index of the sampling model among the completers of the job, from 0."""
    is_author: bool = True
    """True if the sampling model is the author, so that the prefixes' token ids are its own."""
    source_rollouts: Mapping[RolloutKey, Rollout] = field(default_factory=dict)
    """Rollouts of the source run (an earlier run), which are reused instead of sampled."""
    _ids_by_prefix: dict[str, tuple[int, ...]] = field(default_factory=dict, init=False, repr=False)
    _num_tokens_by_prefix: dict[str, int] = field(default_factory=dict, init=False, repr=False)

    def get_prefix_ids(self, prefix: Prefix) -> tuple[int, ...]:
        """Return the token ids of a prefix in the sampling model's vocabulary.

        Raises:
            PrefixNotReproduced: another model wrote the prefix, and the sampling model's tokenizer
                does not reproduce its text.
        """
        if self.is_author:
            return prefix.ids
        if prefix.id not in self._ids_by_prefix:
            ids = encode_prefix(self.policy, prefix)
            self._ids_by_prefix[prefix.id], self._num_tokens_by_prefix[prefix.id] = ids, len(ids)
            while len(self._ids_by_prefix) > max(1, MAX_CACHED_PREFIX_TOKENS // max(1, len(ids))):
                del self._ids_by_prefix[next(iter(self._ids_by_prefix))]
            return ids
        return self._ids_by_prefix[prefix.id]

    def count_prefix_tokens(self, prefix: Prefix) -> int:
        """Return the number of tokens of a prefix in the sampling model's vocabulary.

        The token ids are not built if the sampling model wrote the prefix.
        """
        if self.is_author:
            return prefix.num_tokens
        if prefix.id not in self._num_tokens_by_prefix:
            self.get_prefix_ids(prefix)
        return self._num_tokens_by_prefix[prefix.id]

    def check_context_room(self, prefixes: Iterable[Prefix]) -> None:
        """Check that the context has room for a completion of each prefix.

        Without room a rollout would have no tokens and count as truncated, which would wrongly
        lower the value of the step.

        Raises:
            NoContextRoom: a prefix leaves no room.
            PrefixNotReproduced: `get_prefix_ids` raises it.
        """
        key = "policy.max_tokens"
        if self.completer_name != AUTHOR:
            key = f"max_tokens of the completer {self.completer_name}"
        for prefix in prefixes:
            length = self.count_prefix_tokens(prefix)
            if self.policy.room(len(self.prompt), length) < 1:
                raise NoContextRoom(
                    f"a step of one of its solutions ends after {length:,} tokens, which leaves "
                    f"no room for a completion. Raise {key}, at most to the model's limit"
                )

    def lacks_needed_room(self, prefix: Prefix) -> bool:
        """Return whether a prefix leaves room for fewer than `Prefix.num_tokens_needed` tokens.

        Most rollouts from such a prefix would be truncated and count as wrong, whatever the step's
        value. The decision depends on the solutions only, so a resumed run decides in the same way.

        Raises:
            PrefixNotReproduced: `get_prefix_ids` raises it.
        """
        if not prefix.num_tokens_needed:
            return False
        length = self.count_prefix_tokens(prefix)
        need = (
            prefix.num_tokens_needed * length / prefix.num_tokens
        )  # converted to tokens of this policy
        return self.policy.room(len(self.prompt), length) < need

    async def roll_out(self, prefix: Prefix) -> tuple[Completion | None, Rollout]:
        """Sample the next rollout from a prefix, or take it from the source run or the journal.

        Returns:
            The completion and the rollout. The completion is None if the rollout comes from the
            source run. The rollout is ungraded if the context lacks room.
        """
        index = prefix.num_requested[self.completer_index]
        prefix.num_requested[self.completer_index] += 1
        if (taken := self.source_rollouts.get((prefix.id, self.completer_name, index))) is not None:
            return None, taken
        recorded: JournaledRollout | None = None
        if self.journal is not None:
            recorded = self.journal.take(("rollout", self.completer_name, prefix.id, index))
        if recorded is not None and not recorded.failed:
            return recorded.completion, recorded.rollout
        seed = derive_sampling_seed(
            self.run_seed,
            self.problem.id,
            prefix.id,
            index,
            completer="" if self.completer_name == AUTHOR else self.completer_name,
        )
        why, withheld = None, recorded is None and self.lacks_needed_room(prefix)
        if recorded is not None:
            completion = recorded.completion
        elif withheld:
            completion, why = _NO_COMPLETION, NO_ROOM
        else:
            completion, why = await self.sample(self.get_prefix_ids(prefix), seed=seed)
        grade = (
            await self.grade(completion, prefix.text)
            if why is None
            else make_failed_grade_record(why)
        )
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
            completer=self.completer_name,
        )
        if self.journal is not None and why is None:
            self.journal.add(
                partial(make_rollout_line, rollout, completion.ids, failed=grade.failed)
            )
        return completion, rollout

    async def sample(self, prefix: tuple[int, ...], *, seed: int) -> tuple[Completion, str | None]:
        """Sample a completion of a prefix.

        Args:
            prefix: token ids that the completion continues.
            seed: random seed of the completion.

        Returns:
            The completion, and the reason if the engine failed on this request; else None.

        Raises:
            EngineError: the engine died, or fails on all requests.
        """
        try:
            with add_completer_name_to_errors(self.completer_name):
                completion = await self.policy.sample(
                    self.prompt, prefix, seed=seed, priority=self.priority
                )
        except UnusableResponse as error:
            return _NO_COMPLETION, str(error)
        return completion, None

    async def grade(self, completion: Completion, prefix: str = "") -> GradeRecord:
        """Grade a completion. A truncated completion is not passed to the checker.

        Args:
            completion: sampled completion.
            prefix: text that the completion continues.

        Raises:
            CheckerError: the checker fails on every completion.
        """
        if completion.finish_reason == "length":
            return TRUNCATED_GRADE
        item = GradeItem(problem=self.problem, completion=prefix + completion.text)
        (grade,) = await self.checker.grade([item], self.executor.run)
        return to_grade_record(grade)


FinishedRollout = tuple[Probe, Completion | None, Rollout]
"""A finished request: the probe, its completion and its rollout. The completion is None if the
rollout comes from a source run or is replayed."""


class EstimatorRun:
    """An estimator, and the table of prefixes in which its rollouts are counted."""

    def __init__(
        self,
        estimator: ProblemEstimator,
        table: PrefixTable,
        policies: Sequence[Policy | None] | None,
    ) -> None:
        """Start without rollouts.

        Args:
            estimator: estimator of the problem.
            table: table of the problem's prefixes. Counts of rollouts are added to it; if
                `Estimator.follow` is `all`, the prefixes of rollouts are added as well.
            policies: policies of the completers, by index; None in place of a completer whose
                rollouts are not traced through the prefixes. None instead of a sequence if every
                rollout already records the prefixes that it passes through.
        """
        self.estimator, self.table, self._policies = estimator, table, policies
        self.rollouts: list[Rollout] = []
        """Rollouts that the estimator received so far."""

    def record(self, finished: Iterable[FinishedRollout], *, is_requested: bool = True) -> None:
        """Count rollouts and give them to the estimator.

        Args:
            finished: finished requests with their rollouts.
            is_requested: True if the estimator requested the rollouts.
        """
        follow = self.estimator.follow
        for (prefix, completer), completion, rollout in finished:
            counts = self.table.prefixes[prefix].counts
            counts[completer] = counts[completer].plus(rollout.outcome, rollout.num_tokens)
            policy = None if self._policies is None else self._policies[completer]
            ids: Sequence[int] | None = None if completion is None else completion.ids
            on_record = follow == "known" and rollout.step_ends is not None
            if ids is None and policy is not None and follow != "nothing" and not on_record:
                ids = policy.encode(rollout.text)
            if ids is not None and policy is not None and follow == "known":
                rollout = self.table.trace_rollout(prefix, rollout, ids, policy.decode)
            if ids is not None and policy is not None and follow == "all":
                received = self.table.add_rollout(prefix, rollout, tuple(ids), policy.decode)
            else:
                received = self.table.to_recorded_rollout(prefix, rollout)
            self.estimator.record(
                received if is_requested else replace(received, is_requested=False)
            )
            self.rollouts.append(rollout)

    def record_unrequested(self, recorded: Mapping[RolloutKey, Rollout]) -> None:
        """Give the estimator recorded rollouts that it did not request, if `Estimator.takes_all` is
        true.
        """
        if not self.estimator.takes_all:
            return
        numbers = {prefix.id: number for number, prefix in enumerate(self.table.prefixes)}
        whose = self.table.completers
        taken = [
            (Probe(numbers[prefix], whose[name]), None, recorded[prefix, name, index])
            for prefix, name, index in sorted(recorded)
            if prefix in numbers and name in whose
        ]
        for probe, _, rollout in taken:
            asked = self.table.prefixes[probe.prefix].num_requested
            asked[probe.completer] = max(asked[probe.completer], rollout.index + 1)
        self.record(taken, is_requested=False)

    def judge(self) -> list[Judgement]:
        """Return a judgement on each solution. Call this only after the last requested rollout was
        recorded.
        """
        order = self.table.completers
        self.rollouts.sort(key=lambda r: (r.prefix_id, order[r.completer], r.index))
        by_prefix = [prefix.counts for prefix in self.table.prefixes]
        return self.estimator.judge(list(zip(*by_prefix, strict=True)))


async def roll_out_and_judge(
    run: EstimatorRun,
    samplers: Sequence[Sampler],
    *,
    executor: CpuExecutor,
    decisions: DecisionBatcher,
) -> list[Judgement]:
    """Sample the rollouts that an estimator requests until it requests no more.

    Args:
        run: estimator and prefix table; rollouts and counts are added to it.
        samplers: samplers of the problem, one per completer.
        executor: executor that computes the estimator's decisions.
        decisions: batcher that combines the decisions of the problems on one engine.

    Returns:
        A judgement on each solution.

    Raises:
        NoContextRoom: rollouts are requested, but a prefix of the solutions leaves no room for
            them.
        PrefixNotReproduced: rollouts are requested from a completer whose tokenizer does not
            reproduce the text of a prefix.
    """
    estimator, prefixes = run.estimator, run.table.prefixes
    is_checked = False

    async def run_probe(probe: Probe) -> FinishedRollout:
        return (probe, *await samplers[probe.completer].roll_out(prefixes[probe.prefix]))

    def record_and_decide(
        ended: Sequence[FinishedRollout], *, is_last: bool
    ) -> tuple[Sequence[Probe] | None, list[Judgement] | None]:
        """Record the rollouts, then return the next requests, or the judgements at the end.

        Requests and judgements are both None if the next decision has to be computed by the
        batcher.
        """
        run.record(ended)
        if estimator.is_due:
            return None, None
        wanted = estimator.wanted(len(prefixes))
        return wanted, None if wanted or not is_last else run.judge()

    pending: deque[Probe] = deque()
    longest = 1
    running: set[asyncio.Task[FinishedRollout]] = set()
    done: set[asyncio.Task[FinishedRollout]] = set()
    with decisions.register_active_problem():
        await executor.run(run.record_unrequested, samplers[0].source_rollouts)
        try:
            while True:
                ended = [task.result() for task in done]
                wanted, judgements = await executor.run(
                    record_and_decide, ended, is_last=not (running or pending)
                )
                if wanted is None:
                    wanted = await decisions.request_probes(estimator, len(prefixes))
                    is_over = not (wanted or running or pending)
                    judgements = await executor.run(run.judge) if is_over else None
                if judgements is not None:
                    return judgements
                if wanted and not is_checked:
                    for sampler in samplers:
                        sampler.check_context_room(prefixes)
                    is_checked = True
                pending.extend(wanted)
                longest = max([longest, *(prefixes[probe.prefix].num_tokens for probe in wanted)])
                most = min(MAX_RUNNING, max(1, MAX_RUNNING_TOKENS // longest))
                while pending and len(running) < most:
                    running.add(asyncio.create_task(run_probe(pending.popleft())))
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, *done, return_exceptions=True)


def replay_and_count_missing(run: EstimatorRun, recorded: dict[RolloutKey, Rollout]) -> int:
    """Run an estimator with recorded rollouts instead of sampled ones.

    An estimator that accepts unrequested rollouts receives all of them first.

    Args:
        run: estimator and prefix table; rollouts and counts are added to it.
        recorded: recorded rollouts by key. Each rollout that the estimator requests is removed from
            this dict.

    Returns:
        The number of requested rollouts that were not recorded.
    """
    estimator, prefixes, names = run.estimator, run.table.prefixes, list(run.table.completers)
    num_missing = 0
    run.record_unrequested(recorded)
    while wanted := estimator.wanted(len(prefixes)):
        for probe in wanted:
            prefix, who = prefixes[probe.prefix], probe.completer
            rollout = recorded.pop((prefix.id, names[who], prefix.num_requested[who]), None)
            prefix.num_requested[who] += 1
            if rollout is None:
                num_missing += 1
            else:
                run.record([(probe, None, rollout)])
    return num_missing
