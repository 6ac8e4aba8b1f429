"""The service that computes rewards and step credits (advantages) of completions. One PRM, checker
and credit method serve all requests.

Completions of several requests are scored in the same batches. An empty or repetitive completion is
refused: its reward is 0, and its step credits are computed as if all PRM scores were 0. A
completion that cannot be graded or read is masked: it is not compared with other completions, and
its credits are 0.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, cast

from mclabel.answers.golds import Gold, InvalidGold, penalize_guess, read_gold
from mclabel.checkers import GradeItem, make_checker
from mclabel.core.components import load_component_class
from mclabel.core.errors import ConfigError, DataError, UnusableResponse
from mclabel.core.records import Outcome, Problem
from mclabel.core.seeds import content_id
from mclabel.core.stats.values import TruncatedPolicy
from mclabel.data.lengths import Decode
from mclabel.data.steps import StepSplitter
from mclabel.engines.pretrained import name_option_in_code_errors
from mclabel.labeling.grading import to_grade_record
from mclabel.prm.scoring.aggregate import aggregate
from mclabel.prm.scoring.batched import BatchedScorer, choose_batch_tokens
from mclabel.prm.scoring.items import SolutionItem
from mclabel.prm.scoring.scorer import load_scorer
from mclabel.rl.client import RewardItem, StepRewards, find_zero_reward_reason
from mclabel.rl.config import RewardSettings
from mclabel.rl.credits import (
    ERROR_BELOW,
    CheckedCredit,
    Credit,
    Segment,
    StepEvidence,
    compute_mean,
    make_single_segment,
)
from mclabel.run.cpu_executor import CpuExecutor, gather_or_cancel
from mclabel.serving.requests import RequestLimits, RequestQueue


@dataclass(frozen=True, kw_only=True)
class _ItemResult:
    """Result of one completion, before it is compared with its group."""

    ends: tuple[int, ...] = ()
    """Exclusive end position of each step, in characters."""
    scores: tuple[float, ...] = ()
    """PRM score of each step; empty without a PRM."""
    outcome: str | None = None
    """Outcome of the completion; None without a checker."""
    reward: float | None = 0.0
    """Reward of the completion, in [0, 1]; None if it is unknown."""
    refused: str | None = None
    """Reason in `REFUSALS` for which the completion is refused, or None."""


def check_credit_evidence(settings: RewardSettings) -> None:
    """Check that the server has the PRM that its credit method needs.

    Raises:
        ConfigError: the credit does not exist, or needs scores but there is no PRM.
    """
    kind, needs = settings.credit.kind, load_component_class(settings.credit, Credit).needs
    if needs and settings.prm is None:
        raise ConfigError(
            f"credit.kind={kind}: needs step scores, but prm is null. Set prm to the folder of a "
            "PRM, or set credit=outcome"
        )


class Rewarder:
    """A service that computes the rewards and step credits (advantages) of completions."""

    def __init__(self, settings: RewardSettings, *, limits: RequestLimits) -> None:
        """Create the service without loading the PRM.

        Args:
            settings: settings of the server.
            limits: maximum numbers of requests that are processed and that wait.

        Raises:
            ConfigError: the credit needs step scores, but there is no PRM.
        """
        check_credit_evidence(settings)
        self.settings = settings
        self.requests = RequestQueue(limits)
        self.num_scored = self.num_ungraded = self.num_masked = 0
        self.num_refused = Counter(dict.fromkeys(REFUSALS, 0))
        self._credit = CheckedCredit(settings.credit)
        self._checker = make_checker(settings.checker) if settings.check else None
        self._executor = CpuExecutor()
        self._scorer = None
        if settings.prm is not None:
            cores = os.cpu_count() or 1
            self._scorer = BatchedScorer(
                partial(load_scorer, settings, threads=cores),
                max_tokens=choose_batch_tokens(cores, on_gpu=settings.on_gpu),
            )

    async def start(self) -> None:
        """Load the PRM."""
        if self._scorer is not None:
            with name_option_in_code_errors("trust_remote_code=true"):
                await self._scorer.start()

    def begin(self, items: Sequence[RewardItem | None]) -> asyncio.Task[list[StepRewards]]:
        """Start to compute the rewards of completions. Cancelling the returned task ends the work.

        Args:
            items: completions; None for a completion whose query (prompt and completion as one
                text) does not begin with its prompt.

        Raises:
            Refused: the server is busy or shutting down. The task may also raise it.
        """
        return self.requests.begin(lambda: self._compute_rewards(items))

    async def close(self) -> None:
        """Cancel all requests and free the PRM."""
        await self.requests.close()
        self._executor.close()
        if self._scorer is not None:
            await self._scorer.close()

    async def _compute_rewards(self, items: Sequence[RewardItem | None]) -> list[StepRewards]:
        ends_and_reasons = await gather_or_cancel(*map(self._split_or_refuse, items))
        readable = [
            (index, item, ends_and_reasons[index][0])
            for index, item in enumerate(items)
            if item is not None and ends_and_reasons[index][1] is None
        ]
        scores_and_outcomes: Any = await gather_or_cancel(
            gather_or_cancel(*(self._score_steps(item, ends) for _, item, ends in readable)),
            self._grade_answers([item for _, item, _ in readable]),
        )
        scores_or_reasons, outcomes = scores_and_outcomes
        results = [
            self._make_refused_result(ends, reason or "empty") for ends, reason in ends_and_reasons
        ]
        for (index, item, ends), scores_or_reason, outcome in zip(
            readable, scores_or_reasons, outcomes, strict=True
        ):
            if isinstance(scores_or_reason, str):
                results[index] = self._make_refused_result(ends, scores_or_reason)
            else:
                results[index] = self._make_scored_result(
                    ends, scores_or_reason, outcome, item.truncated
                )
        rewards_of_items = self._assign_credit(items, results)
        self._count_answers(rewards_of_items)
        return rewards_of_items

    def _count_answers(self, rewards_of_items: Sequence[StepRewards]) -> None:
        for item_rewards in rewards_of_items:
            self.num_masked += item_rewards.masked
            if item_rewards.refused is None:
                self.num_scored += 1
                self.num_ungraded += item_rewards.outcome == Outcome.UNGRADED
            else:
                self.num_refused[item_rewards.refused] += 1

    def _make_refused_result(self, ends: tuple[int, ...], reason: str) -> _ItemResult:
        outcome = None if self._checker is None else Outcome.UNGRADED.value
        is_unknown = reason in UNREADABLE or (
            reason == "too_long" and self.settings.truncated == "exclude"
        )
        return _ItemResult(
            ends=ends, refused=reason, outcome=outcome, reward=None if is_unknown else 0.0
        )

    def _make_scored_result(
        self,
        ends: tuple[int, ...],
        scores: tuple[float, ...],
        outcome: Outcome | None,
        truncated: bool,
    ) -> _ItemResult:
        truncated_policy = self.settings.truncated
        if outcome is None:
            is_known = not truncated or truncated_policy == "wrong"
            reward = aggregate(scores, self.settings.aggregate) if is_known else None
            return _ItemResult(ends=ends, scores=scores, reward=reward)
        if truncated:
            outcome = Outcome.TRUNCATED
        return _ItemResult(
            ends=ends,
            scores=scores,
            outcome=outcome.value,
            reward=compute_outcome_reward(outcome, truncated_policy),
        )

    async def _split_or_refuse(self, item: RewardItem | None) -> tuple[tuple[int, ...], str | None]:
        """Return the ends of a completion's steps, and the reason for refusing it, if any.

        The ends are exclusive positions in characters.
        """
        if item is None:
            return (), "unmatched"
        ends, reason = await self._executor.run(
            split_or_refuse_text, item.completion, self.settings.split
        )
        if self._checker is not None and isinstance(read_gold(item.answer), InvalidGold):
            return ends, "no_gold"
        return ends, reason

    async def _score_steps(
        self, item: RewardItem, ends: tuple[int, ...]
    ) -> tuple[float, ...] | str:
        """Return the scores of a completion's steps, or the name of a reason for refusing it.

        The scores are empty without a PRM.
        """
        from mclabel.prm.examples.encode import TooLongError
        from mclabel.prm.scoring.aggregate import check_scores

        if self._scorer is None:
            return ()
        solution = SolutionItem(
            id="",
            number=1,
            place="completion",
            row="",
            problem=item.problem,
            steps=tuple(item.completion[start:end] for start, end in pairwise((0, *ends))),
        )
        try:
            (scores, *_), _ = await self._scorer.score(solution)
        except TooLongError:
            return "too_long"
        except (DataError, UnusableResponse):  # UnscoredError is a DataError
            return "not_scored"
        check_scores(str(self.settings.prm), [scores], [solution.place])
        return tuple(scores)

    async def _grade_answers(self, items: Sequence[RewardItem]) -> Sequence[Outcome | None]:
        if self._checker is None or not items:
            return [None] * len(items)
        grades = await self._checker.grade(
            [GradeItem(problem=_make_problem(item), completion=item.completion) for item in items],
            self._executor.run,
        )
        return [to_grade_record(penalize_guess(grade)).outcome for grade in grades]

    def _assign_credit(
        self, items: Sequence[RewardItem | None], results: Sequence[_ItemResult]
    ) -> list[StepRewards]:
        groups: defaultdict[tuple[str | None, str], list[int]] = defaultdict(list)
        for index, item in enumerate(items):
            if item is not None:
                has_group = item.group is not None
                groups[item.group, "" if has_group else item.problem].append(index)
        segments: dict[int, tuple[Segment, ...]] = {}
        mean_rewards: dict[int, float] = {}
        for members in groups.values():
            assigned = self._credit.assign_known(
                [self._make_step_evidence(results[index]) for index in members]
            )
            rewards = [reward for index in members if (reward := results[index].reward) is not None]
            for index, assigned_segments in zip(members, assigned, strict=True):
                segments[index] = (
                    make_single_segment(len(results[index].ends), 0.0)
                    if assigned_segments is None
                    else assigned_segments
                )
                mean_rewards[index] = compute_mean(rewards) if rewards else 0.0
        rewards_of_items = []
        for index, result in enumerate(results):
            credits, ends_segment = list[float](), list[bool]()
            for segment in segments.get(index, ()):
                length = segment.end - len(credits)
                credits += [segment.credit] * length
                ends_segment += [*[False] * (length - 1), True]
            rewards_of_items.append(
                StepRewards(
                    reward=mean_rewards.get(index, 0.0) if result.reward is None else result.reward,
                    masked=result.reward is None,
                    outcome=result.outcome,
                    ends=result.ends,
                    scores=result.scores,
                    credits=tuple(credits),
                    ends_segment=tuple(ends_segment),
                    refused=result.refused,
                )
            )
        return rewards_of_items

    def _make_step_evidence(self, result: _ItemResult) -> StepEvidence | None:
        if result.reward is None:
            return None
        scores, first_error = None, None
        if self._scorer is not None:
            scores = result.scores if result.refused is None else (0.0,) * len(result.ends)
            first_error = next(
                (index for index, score in enumerate(scores) if score < ERROR_BELOW), None
            )
        return StepEvidence(
            num_steps=len(result.ends), reward=result.reward, scores=scores, first_error=first_error
        )


def _make_problem(item: RewardItem) -> Problem:
    gold = read_gold(item.answer)
    assert isinstance(gold, Gold)  # else the completion was refused
    return Problem(
        id=content_id("problem", item.problem, gold.answer),
        text=item.problem,
        answer=gold.answer,
        answer_is_json=gold.is_json,
    )


def compute_outcome_reward(outcome: Outcome, truncated: TruncatedPolicy) -> float | None:
    """Return the reward of an outcome: 1 if the answer is right, 0 if it is wrong.

    The reward is None if the answer could not be graded. It is also None if the completion was
    truncated and `truncated` is `exclude`.
    """
    if outcome is Outcome.UNGRADED or (outcome is Outcome.TRUNCATED and truncated == "exclude"):
        return None
    return float(outcome is Outcome.RIGHT)


MAX_CHARACTERS = 262_144
"""Maximum number of characters of a completion. A longer completion is refused as `too_long`."""
REFUSALS = ("empty", "repeated", "too_long", "not_scored", "unmatched", "no_gold")
"""Reasons for refusing a completion:

- `empty`: the completion is blank.
- `repeated`: it has at least four steps, and more than half of them repeat an earlier step.
- `too_long`: it is longer than `MAX_CHARACTERS` or than the PRM accepts.
- `not_scored`: the PRM cannot encode or score its text.
- `unmatched`: the trainer's query does not begin with its prompt.
- `no_gold`: the gold answer says that the problem has no answer, such as `proof`."""
UNREADABLE = ("not_scored", "unmatched", "no_gold")
"""Reasons for refusing a completion that make its reward unknown instead of 0. A completion that is
`too_long` counts as truncated."""


def split_or_refuse_text(text: str, split: StepSplitter) -> tuple[tuple[int, ...], str | None]:
    """Return the ends of a completion's steps, and the reason for refusing it, if any.

    The ends are exclusive positions in characters. The reason, None if it is not refused, depends
    only on the text.
    """
    if not text.strip():
        return (), "empty"
    if len(text) > MAX_CHARACTERS:
        return (len(text),), "too_long"
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        return (len(text),), "not_scored"
    # The splitter receives the characters as tokens, so that decoding returns the text itself.
    steps = split.split(cast(Sequence[int], text), text, cast(Decode, str))
    ends = tuple(accumulate(len(step.text) for step in steps))
    return ends, find_zero_reward_reason([step.text for step in steps])
