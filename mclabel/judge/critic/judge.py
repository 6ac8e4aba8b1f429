"""A language model as a judge: it is asked for the first error, by several votes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

from mclabel.core.errors import ConfigError, EngineDied, RequestFailed
from mclabel.core.seeds import sampling_seed
from mclabel.engines import Engine, make_engine, runs_model
from mclabel.engines.base import never_fits
from mclabel.engines.gate import GatedPolicy
from mclabel.engines.resources import EngineResources
from mclabel.engines.sections import settings_of
from mclabel.judge.base import (
    UNKNOWN_VOTE,
    Answer,
    Asks,
    Judge,
    JudgedItem,
    JudgeSettings,
    Opinion,
    prompt_hash,
)
from mclabel.judge.critic.parse import Vote, parse_output
from mclabel.judge.critic.prompts import critic_prompt, template_hash
from mclabel.judge.critic.settings import CriticPolicySettings, CriticSettings
from mclabel.judge.critic.votes import RETRY_BUDGET, Result, Votes
from mclabel.run.task import RunnerState
from mclabel.run.worker import repeat

POLICY = "judge.policy"
"""Key of the model's settings."""
ADJUST_S = 0.5
"""Between two looks at the engine's memory."""
MAX_REASON = 300


class CriticJudge(Judge):
    """Asks a language model for the first error until its votes have decided."""

    class Settings(JudgeSettings, CriticSettings):
        """A language model that is asked for the first wrong step."""

        policy: CriticPolicySettings = CriticPolicySettings()
        """The model that is asked, with its engine, prompt and sampling."""

    claim: ClassVar = "where"
    version: ClassVar[str] = "2"
    settings: Settings

    def __init__(self, settings: Settings, *, seed: int = 0) -> None:
        """Prepare to judge; see `Judge`."""
        super().__init__(settings, seed=seed)
        with settings_of(POLICY):
            self._engine: Engine = make_engine(settings.policy, seed=seed, continues=False)
        self._policy = GatedPolicy(self._engine)
        self._adjusting: asyncio.Task[None] | None = None

    @classmethod
    def settled(cls, settings: Settings, recorded: Mapping[str, Any]) -> Settings:
        """The settings as they are, if they name a model; see `Judge`.

        Raises:
            ConfigError: the engine runs a model, and none is named: the default cannot judge.
        """
        policy = settings.policy
        if "model" not in policy.model_fields_set and runs_model(policy):
            raise ConfigError(
                f"{POLICY}.model: is not set, and a critic needs a model that can judge steps. "
                f"Pass {POLICY}.model=MODEL (a folder or Hugging Face name), or choose an engine "
                "that needs none"
            )
        return settings

    def known(self) -> dict[str, Any]:
        """The model by its content, and what it is asked; see `Judge`."""
        with settings_of(POLICY):
            model = self._engine.model_identity()
        return {
            "policy": {"model": model},
            "prompt": template_hash(self.settings.template),
        }

    def asked(self) -> dict[str, Any]:
        """The template, and whether it was filled with references; see `Judge`."""
        return {
            "template": asdict(self.settings.template),
            "use_reference": self.settings.use_reference,
        }

    def check(self) -> None:
        """See that the model can be loaded."""
        with settings_of(POLICY):
            self._engine.check_environment()
            self._engine.check_model()

    def resources(self) -> EngineResources:
        """Those of the engine."""
        return self._engine.resources()

    async def start(self) -> None:
        """Load the engine."""
        with settings_of(POLICY):
            await self._policy.start()
        self._adjusting = asyncio.create_task(repeat(ADJUST_S, self._policy.adjust))

    async def judge(self, item: JudgedItem, ask: Asks) -> Opinion:
        """Ask until the votes have decided, several at a time."""
        settings = self.settings
        reference = item.reference if settings.use_reference else None
        if settings.use_reference and reference is None:
            return Opinion(is_known=False, reason="it has no reference (use_reference=true)")
        prompt = critic_prompt(settings.template, item.problem, item.steps, reference)
        votes = Votes(settings.least_votes, settings.most_votes)
        answers: list[Answer] = []
        seen: list[Vote] = []
        unanswered: list[int] = []
        """Numbers of the votes of the last round that stayed unknown."""
        while count := votes.wanted():
            is_retry = votes.retry
            numbers = unanswered if is_retry else range(len(seen), len(seen) + count)
            budget = settings.max_tokens * (RETRY_BUDGET if is_retry else 1)
            found = await asyncio.gather(
                *(ask(prompt, number=number, max_tokens=budget) for number in numbers)
            )
            read = [self._vote(answer, item) for answer in found]
            unanswered = [n for n, vote in zip(numbers, read, strict=True) if not vote.is_known]
            for number, vote in zip(numbers, read, strict=True):
                if is_retry:
                    seen[number] = vote
                else:
                    seen.append(vote)
                votes.record(vote)
            answers += found
        return _opinion(votes.result(), seen, answers, len(item.steps))

    async def sample(self, prompt: str, *, number: int, max_tokens: int) -> Answer:
        """One answer of the model; see `Judge`."""
        name = prompt_hash(prompt)
        if (size := never_fits(len(prompt), self._policy)) is not None:
            why = f"the prompt has {size}, which the model takes"
            return _failed(name, number, max_tokens, why)
        ids = self._policy.prompt_ids(prompt)
        if len(ids) >= self._policy.max_context:
            why = f"the prompt has {len(ids)} tokens, the model takes {self._policy.max_context:g}"
            return _failed(name, number, max_tokens, why)
        seed = sampling_seed(self.seed, name, str(max_tokens), number)
        try:
            with settings_of(POLICY):
                found = await self._policy.sample(ids, (), seed=seed, max_tokens=max_tokens)
        except EngineDied:
            raise
        except RequestFailed as error:
            return _failed(name, number, max_tokens, str(error))
        return Answer(
            prompt=name,
            number=number,
            max_tokens=max_tokens,
            text=found.text,
            finish_reason=found.finish_reason,
            num_tokens=found.num_tokens,
        )

    def state(self) -> RunnerState:
        """The state of the engine."""
        stats = self._policy.stats()
        return RunnerState(
            num_live=stats.num_live,
            max_live=stats.max_live,
            num_waiting=stats.num_waiting,
            num_tokens=stats.num_sampled_tokens,
            num_signs=stats.num_signs,
            is_steady=stats.counts_as_sampled,
        )

    async def close(self) -> None:
        """Free the engine."""
        if self._adjusting is not None:
            self._adjusting.cancel()
        await self._policy.close()

    def _vote(self, answer: Answer, item: JudgedItem) -> Vote:
        if answer.finish_reason == "failed":
            return Vote(first_error=None, is_known=False, reason=answer.text)
        truncated = answer.finish_reason == "length"
        parser = self.settings.template.parser
        return parse_output(answer.text, parser, len(item.steps), truncated)


def _failed(prompt: str, number: int, max_tokens: int, why: str) -> Answer:
    return Answer(
        prompt=prompt,
        number=number,
        max_tokens=max_tokens,
        text=why[:MAX_REASON],
        finish_reason="failed",
        num_tokens=0,
    )


def _opinion(result: Result, seen: list[Vote], answers: list[Answer], num_steps: int) -> Opinion:
    """What the votes say together."""
    lead = result.counts.get(result.first_error, 0) if result.is_decided else 0
    reasons = [vote.reason for vote in seen if not vote.is_known]
    undecided = "the votes have not decided" if result.counts else ""
    return Opinion(
        is_known=result.is_decided,
        first_error=result.first_error,
        sureness=lead / sum(result.counts.values()) if lead else None,
        reason="" if result.is_decided else undecided or (reasons[0] if reasons else ""),
        votes=tuple(_place(vote, num_steps) for vote in seen),
        answers=tuple(answers),
        num_tokens=sum(answer.num_tokens for answer in answers),
    )


def _place(vote: Vote, num_steps: int) -> int:
    if not vote.is_known:
        return UNKNOWN_VOTE
    return num_steps if vote.first_error is None else vote.first_error
