"""A critic: a language model as a judge, which is asked several times for the first wrong step. Its
answers are votes, and the majority decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, ClassVar

from pydantic import Field

from mclabel.core.errors import ConfigError, EngineDied, RequestFailed
from mclabel.core.seeds import derive_sampling_seed
from mclabel.core.settings import MAX_TOKENS, OneOf, Settings, at_most, rule
from mclabel.engines import Engine, make_engine, runs_model
from mclabel.engines.base import describe_oversized_text
from mclabel.engines.devices import EngineResources
from mclabel.engines.settings import PolicySettings, name_section_in_errors, rename_policy_keys
from mclabel.judge.base import (
    UNKNOWN_VOTE,
    Answer,
    AnswerSampler,
    Judge,
    JudgedItem,
    JudgeSettings,
    Opinion,
    hash_prompt,
)
from mclabel.judge.critic.parse import (
    FIRST_INDEX,
    RETRY_BUDGET,
    Vote,
    VoteCounter,
    VoteResult,
    parse_output,
)
from mclabel.judge.critic.prompts import (
    TEMPLATES,
    Template,
    describe_missing_placeholders,
    fill_critic_prompt,
    hash_template,
    make_user_template,
)
from mclabel.run.task import RunnerState

MAX_VOTES = 1_024
"""Maximum number of votes on one solution."""


class CriticPolicySettings(PolicySettings):
    """Settings of a critic's model: those of `policy`, with ProcessBench's sampling as default."""

    temperature: float = Field(1.0, ge=0, le=2)
    """Sampling temperature. 0 makes all votes the same."""
    top_p: float = Field(0.9, gt=0, le=1)
    """Nucleus sampling: total probability of the tokens to sample from."""


class CriticSettings(Settings):
    """Settings of a critic's prompt and of its votes."""

    prompt: str = Field("processbench", min_length=1)
    """A built-in prompt (`processbench`, `lessons`, `step_verdicts`, `thinkprm`), or a template
    with {problem}, {steps} and, with `use_reference`, {reference}."""
    parser: Annotated[str, OneOf(tuple(FIRST_INDEX))] | None = None
    """Built-in prompt whose answer format your own template uses."""
    use_reference: bool = False
    """True if the critic sees the problem's reference solution or answer."""
    least_votes: int = Field(3, ge=1, le=MAX_VOTES)
    """Minimum number of readable answers. If they agree, no further answers are sampled."""
    most_votes: Annotated[
        int, at_most(MAX_VOTES, "all of a solution's votes are sampled on one engine")
    ] = Field(8, ge=1)
    """Maximum number of readable answers."""
    max_tokens: int = Field(8_192, ge=1, le=MAX_TOKENS)
    """Maximum number of tokens in an answer. A truncated answer is sampled again with twice this
    number."""

    @property
    def template(self) -> Template:
        """Template named by `prompt`, or made from the user's text in it."""
        if self.prompt in TEMPLATES:
            return TEMPLATES[self.prompt]
        assert self.parser is not None, "checked by a rule"
        return make_user_template(self.prompt, self.parser)

    @rule
    def _check_prompt_name_or_template(self) -> str | None:
        if self.prompt in TEMPLATES or not (fault := describe_missing_placeholders(self.prompt)):
            return None
        if "\n" in self.prompt or "{" in self.prompt:
            return f"prompt: {fault}"
        return (
            f"prompt={self.prompt[:100]!r}: is neither a built-in prompt nor a template with "
            f"{{problem}} and {{steps}}. Take one of {', '.join(TEMPLATES)}, or write a template"
        )

    @rule
    def _check_own_prompt_has_parser(self) -> str | None:
        if self.prompt in TEMPLATES:
            return (
                f"parser={self.parser}: applies to a template of your own, but prompt="
                f"{self.prompt} is a built-in one. Remove parser"
                if self.parser is not None
                else None
            )
        if self.parser is None and not describe_missing_placeholders(self.prompt):
            return (
                "parser=null: a template of your own needs a parser for its answers. Set parser "
                f"to one of {', '.join(FIRST_INDEX)}"
            )
        return None

    @rule
    def _check_reference_has_placeholder(self) -> str | None:
        if self.prompt in TEMPLATES or self.use_reference == ("{reference}" in self.prompt):
            return None
        if self.use_reference:
            return (
                "use_reference=true: your own template has no {reference}. Add {reference} to the "
                "template"
            )
        return (
            "use_reference=false: your own template contains {reference}. Set use_reference=true, "
            "or remove {reference}"
        )

    @rule
    def _check_least_votes(self) -> str | None:
        if self.least_votes > self.most_votes:
            return (
                f"least_votes={self.least_votes}: must be at most most_votes={self.most_votes}. "
                "Lower least_votes, or raise most_votes"
            )
        return None


POLICY = "judge.policy"
"""Key of the settings of the critic's model, for messages."""
MAX_REASON = 300
"""Maximum number of characters of the error message that is stored for a failed answer."""


class CriticJudge(Judge):
    """Judge that samples votes of a language model until they decide on the first error."""

    class Settings(JudgeSettings, CriticSettings):
        """A language model that is asked for the first wrong step."""

        policy: CriticPolicySettings = CriticPolicySettings()
        """The critic's model, with its engine, prompt and sampling."""

    claim: ClassVar = "where"
    version: ClassVar[str] = "3"
    settings: Settings

    def __init__(self, settings: Settings, *, seed: int = 0) -> None:
        """Store the settings without loading the model."""
        super().__init__(settings, seed=seed)
        with name_section_in_errors(POLICY):
            self._engine: Engine = make_engine(settings.policy, seed=seed, continues=False)

    @classmethod
    def resolve_settings(cls, settings: Settings, recorded: Mapping[str, Any]) -> Settings:
        """Return the settings unchanged, after checking that they name a model.

        Raises:
            ConfigError: the engine runs a model, but none is named. The default model cannot judge.
        """
        policy = settings.policy
        if "model" not in policy.model_fields_set and runs_model(policy):
            raise ConfigError(
                f"{POLICY}.model: is not set, and a critic needs a model that can judge steps. "
                f"Pass {POLICY}.model=MODEL (a folder or Hugging Face name), or choose an engine "
                "that needs none"
            )
        return settings

    def identity_inputs(self) -> dict[str, Any]:
        """Return the hash of the model's content and the hash of the prompt template."""
        with name_section_in_errors(POLICY):
            model = self._engine.model_identity()
        return {
            "policy": {"model": model},
            "prompt": hash_template(self.settings.template),
        }

    def prompt_inputs(self) -> dict[str, Any]:
        """Return the prompt template, and whether prompts contain references."""
        return {
            "template": asdict(self.settings.template),
            "use_reference": self.settings.use_reference,
        }

    def check_ready(self) -> None:
        """Check that the model can be loaded."""
        with name_section_in_errors(POLICY):
            self._engine.check_environment()
            self._engine.check_model()

    def resources(self) -> EngineResources:
        """Return the CPUs and GPUs that the engine needs."""
        return self._engine.resources()

    async def start(self) -> None:
        """Load the engine."""
        with name_section_in_errors(POLICY):
            await self._engine.start()

    async def judge(self, item: JudgedItem, ask: AnswerSampler) -> Opinion:
        """Sample answers in rounds until their votes decide on the first error or run out."""
        settings = self.settings
        reference = item.reference if settings.use_reference else None
        if settings.use_reference and reference is None:
            return Opinion(
                is_known=False, reason="the problem has no reference (use_reference=true)"
            )
        prompt = fill_critic_prompt(settings.template, item.problem, item.steps, reference)
        votes = VoteCounter(settings.least_votes, settings.most_votes)
        answers: list[Answer] = []
        seen: list[Vote] = []
        unanswered: list[int] = []
        """Indices of the last round's unknown votes, which are requested once more."""
        while count := votes.count_votes_needed():
            is_retry = votes.is_retry_round
            numbers = unanswered if is_retry else range(len(seen), len(seen) + count)
            budget = settings.max_tokens * (RETRY_BUDGET if is_retry else 1)
            sampled = await asyncio.gather(
                *(ask(prompt, number=number, max_tokens=budget) for number in numbers)
            )
            read = [self._parse_vote(answer, item) for answer in sampled]
            unanswered = [
                number
                for number, vote in zip(numbers, read, strict=True)
                if not vote.is_known and not vote.is_never_retried
            ]
            for number, vote in zip(numbers, read, strict=True):
                if is_retry:
                    seen[number] = vote
                else:
                    seen.append(vote)
                votes.record(vote)
            answers += sampled
        return _make_opinion(votes.result(), seen, answers, len(item.steps))

    async def sample(self, prompt: str, *, number: int, max_tokens: int) -> Answer:
        """Sample an answer of the critic's model."""
        name = hash_prompt(prompt)
        if (size := describe_oversized_text(len(prompt), self._engine)) is not None:
            why = f"the prompt has {size}, the most that the model accepts"
            return _make_failed_answer(name, number, max_tokens, why)
        ids = self._engine.prompt_ids(prompt)
        if len(ids) >= self._engine.max_context:
            why = (
                f"the prompt has {len(ids)} tokens, but the model's context has only "
                f"{self._engine.max_context:g}"
            )
            return _make_failed_answer(name, number, max_tokens, why)
        seed = derive_sampling_seed(self.seed, name, str(max_tokens), number)
        try:
            with name_section_in_errors(POLICY):
                completion = await self._engine.sample(ids, (), seed=seed, max_tokens=max_tokens)
        except EngineDied:
            raise
        except RequestFailed as error:
            return _make_failed_answer(name, number, max_tokens, str(error))
        return Answer(
            prompt=name,
            number=number,
            max_tokens=max_tokens,
            text=rename_policy_keys(completion.text, POLICY)
            if completion.finish_reason == "failed"
            else completion.text,
            finish_reason=completion.finish_reason,
            num_tokens=completion.num_tokens,
        )

    def state(self) -> RunnerState:
        """Return the state of the engine."""
        stats = self._engine.stats()
        return RunnerState(
            num_live=stats.num_live,
            max_live=stats.max_live,
            num_waiting=stats.num_waiting,
            num_tokens=stats.num_sampled_tokens,
            is_steady=stats.counts_as_sampled,
        )

    async def close(self) -> None:
        """Free the engine."""
        await self._engine.close()

    def _parse_vote(self, answer: Answer, item: JudgedItem) -> Vote:
        if answer.finish_reason == "failed":
            return Vote(first_error=None, is_known=False, reason=answer.text, is_never_retried=True)
        truncated = answer.finish_reason == "length"
        parser = self.settings.template.parser
        return parse_output(answer.text, parser, len(item.steps), truncated)


def _make_failed_answer(
    prompt: str, sample_number: int, max_tokens: int, failure_message: str
) -> Answer:
    return Answer(
        prompt=prompt,
        number=sample_number,
        max_tokens=max_tokens,
        text=failure_message[:MAX_REASON],
        finish_reason="failed",
        num_tokens=0,
    )


def _make_opinion(
    result: VoteResult, votes: list[Vote], answers: list[Answer], num_steps: int
) -> Opinion:
    """Return the opinion that results from the votes on a solution with `num_steps` steps."""
    lead = result.counts.get(result.first_error, 0) if result.is_decided else 0
    reasons = [vote.reason for vote in votes if not vote.is_known]
    counts = [answer.num_tokens for answer in answers]
    undecided = "the votes have not decided" if result.counts else ""
    return Opinion(
        is_known=result.is_decided,
        first_error=result.first_error,
        sureness=lead / sum(result.counts.values()) if lead else None,
        reason="" if result.is_decided else undecided or (reasons[0] if reasons else ""),
        votes=tuple(_encode_vote(vote, num_steps) for vote in votes),
        answers=tuple(answers),
        num_tokens=None if None in counts else sum(count or 0 for count in counts),
    )


def _encode_vote(vote: Vote, num_steps: int) -> int:
    if not vote.is_known:
        return UNKNOWN_VOTE
    return num_steps if vote.first_error is None else vote.first_error
