r"""Samples one verification (chain) of a solution by a generative PRM, and derives step scores.

A chain is the text, or for GenPRM the sequence of texts, in which the model checks the solution.
A chain that verifies all steps (ThinkPRM, arXiv 2504.16828) locates the first error in words. Then
the model is asked whether the solution is correct, and q is its probability of "yes". The scores of
the steps are:

    no step incorrect        1, …, 1, q
    step e incorrect         1, …, 1, q, …, q     q from step e on, since later steps rest on e

The minimum and the last score are therefore q, which is the authors' score of a solution. The first
step with a score below 0.5 is the step that the words call the first error. If the engine gives no
probabilities, q is 1 or 0. A chain whose words contradict q is unknown: it gives no scores.

GenPRM (arXiv 2504.00891) is asked about each step in turn and sees its judgements on the earlier
steps. A step's score is P(Yes) / (P(Yes) + P(No)).

In both methods, a chain that is truncated or has no verdict is unknown. In the authors' code it has
the score 0 or 0.5.

The prompts are copied from the authors word for word:

- `thinkprm` (arXiv 2504.16828, mukhal/ThinkPRM `utils/helper.py`, `prm/thinkprm_api.py`): one chain
  verifies all steps, each with `\boxed{correct}` or `\boxed{incorrect}`. The chain is stopped when
  the model ends its thinking (`</think>`), asks whether the solution is correct, or begins to
  verify a step that does not exist. Then the question "Is the solution correct?" is appended.
- `genprm` (arXiv 2504.00891, RyanLiu112/GenPRM `src/prm_evaluation`, without code): each step is a
  turn of a chat, answered by an analysis and a judgement in `\boxed{Yes}` or `\boxed{No}`. As in
  the authors' code, no text separates the question from the analysis.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, isfinite
from typing import Protocol

from mclabel.core.errors import ConfigError, EngineError, RequestFailed
from mclabel.core.records import Completion
from mclabel.core.seeds import content_id, derive_sampling_seed
from mclabel.engines import Engine
from mclabel.engines.base import build_limit_arguments
from mclabel.judge.critic.parse import parse_output
from mclabel.judge.critic.prompts import Template, fill_critic_prompt, hash_template

PARSER = "step_verdicts"
"""Parser of chains that verify all steps, including chains of a user's own template."""
THINKPRM = Template(
    """You are given a math problem and a proposed step-by-step solution:

[Math Problem]

{problem}

[Solution]

{steps}

Review and critique each step in the proposed solution to determine whether each step is correct. \
If the solution is incomplete, only verify the provided steps.""",
    PARSER,
)
THINKPRM_START = "\nLet's verify step by step:"
"""Text with which every ThinkPRM chain begins."""
THINKPRM_STOPS = ("Is the solution correct?", "</think>")
"""Texts that end a chain. A chain also ends at the heading of a step that does not exist."""
WHOLE_QUESTION = "\nIs the solution correct? "
WHOLE_VERDICTS = ("yes", "no")

GENPRM_SYSTEM = (
    "You are a math teacher. Your task is to review and critique the paragraphs in solution step "
    "by step."
)
GENPRM_START = "<analyze>\nLet's analyze the Paragraph {number} step by step: "
GENPRM_STOP = "</analyze>"
GENPRM_QUESTION = "</analyze>\n<output>\n**Judgement**: $\\boxed{"
GENPRM_END = "}$\n</output>\n"
GENPRM_VERDICTS = ("Yes", "No")


def hash_verifier_wording(template: str) -> str:
    """Return a hash of a verifier's prompts and of the words that it reads as verdicts.

    Args:
        template: `thinkprm`, `genprm`, or the text of the user's own template.
    """
    if template == "genprm":
        parts = (GENPRM_SYSTEM, GENPRM_START, GENPRM_STOP, GENPRM_QUESTION, GENPRM_END)
        return content_id(*parts, *GENPRM_VERDICTS)
    is_built_in = template == "thinkprm"
    asked = THINKPRM if is_built_in else Template(template.strip(), PARSER)
    more = (THINKPRM_START, *THINKPRM_STOPS) if is_built_in else ()
    return content_id(hash_template(asked), *more, WHOLE_QUESTION, *WHOLE_VERDICTS)


@dataclass(frozen=True)
class VerdictTokens:
    """Token ids of a question and of its two possible answers."""

    question_ids: tuple[int, ...]
    """Token ids of the question and of the prefix that both answers share."""
    correct_id: int
    """Token id of the answer that means "correct"."""
    incorrect_id: int
    """Token id of the answer that means "incorrect"."""

    @classmethod
    def from_texts(cls, engine: Engine, question: str, answers: tuple[str, str]) -> VerdictTokens:
        """Tokenise a question and its answers.

        Question and answer are tokenised as one text, as the model has read them in training. A
        prefix that both answers share, such as a space, belongs to the question.

        Args:
            engine: engine that is started.
            question: question that is appended to a chain.
            answers: answer that means "correct", and answer that means "incorrect".

        Raises:
            ConfigError: an answer is not a single token.
        """
        good, bad = (engine.encode(question + answer) for answer in answers)
        num_common = 0
        while num_common < min(len(good), len(bad)) and good[num_common] == bad[num_common]:
            num_common += 1
        for answer, ids in zip(answers, (good, bad), strict=True):
            if len(ids) != num_common + 1:
                raise ConfigError(
                    f"generative.read=token: {answer!r} is {len(ids) - num_common} tokens of this "
                    f"model's tokenizer after {question!r}. It must be one token so that its "
                    "probability can be read. Set generative.read=text"
                )
        return cls(good[:num_common], good[num_common], bad[num_common])

    async def estimate_correct_probability(
        self, engine: Engine, prompt: Sequence[int], prefix: Sequence[int]
    ) -> float | None:
        """Return P(correct) / (P(correct) + P(incorrect)) after the question.

        None if the engine gives no log-probabilities.

        Args:
            engine: engine that is started.
            prompt: token ids of the prompt.
            prefix: token ids of the chain, without the question.

        Raises:
            EngineError: both log-probabilities are infinite or not numbers.
        """
        logprobs = await engine.logprobs(
            prompt, (*prefix, *self.question_ids), (self.correct_id, self.incorrect_id)
        )
        if logprobs is None:
            return None
        good, bad = logprobs
        if not isfinite(max(good, bad)):
            raise EngineError(
                f"generative.read=token: the engine gives the log-probabilities {good} and {bad}, "
                "but at least one must be finite. Check the model's weights, which are damaged, or "
                "its dtype, which overflows"
            )
        least = min(good - bad, 700.0) if good > bad else max(good - bad, -700.0)
        return 1 / (1 + exp(-least))


CERTAIN = 0.5
"""Threshold of the scores: a step with a lower score counts as wrong."""
JUDGEMENT_TOKENS = 16
"""Maximum number of tokens of a judgement that is read as text."""
PROBE = "1 + 1 = 2"
"""Text with which `prepare` tests whether the engine gives log-probabilities and renders chats."""
MAX_REASON = 300
"""Maximum number of characters of a chain's `reason`."""
_JUDGEMENT = re.compile(r"\s{0,3}(yes|no)\b", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Chain:
    """Result of one sampled verification of a solution."""

    scores: tuple[float, ...] | None = None
    """Scores of the steps, each in [0, 1]; None if the chain has no usable verdict."""
    reason: str = ""
    """Reason why `scores` is None."""
    num_tokens: int = 0
    """Number of sampled tokens."""


class Verifier(Protocol):
    """Interface of classes that sample chains (verifications of a solution) from a model."""

    async def prepare(self) -> None:
        """Prepare to read verdicts, after the engine has started.

        Raises:
            ConfigError: the model does not support this kind of verification.
        """

    def first_prompt_ids(self, problem: str, steps: Sequence[str]) -> tuple[int, ...]:
        """Return the token ids of the first prompt."""

    @property
    def num_fixed_tokens(self) -> int:
        """Number of tokens of fixed texts that a request contains besides the first prompt."""

    async def sample_chain(
        self, problem: str, steps: Sequence[str], *, chain_index: int, max_tokens: int
    ) -> Chain:
        """Sample one verification of a solution (a chain).

        Args:
            problem: text of the problem.
            steps: texts of the steps.
            chain_index: index of this chain among the chains of a solution, from 0.
            max_tokens: maximum number of tokens of each text that is sampled for the chain.

        Raises:
            EngineDied: the engine has died.
        """


class _EngineVerifier:
    """Common base class of both verifiers, which ask `question` and read one of two `answers`."""

    question: str
    answers: tuple[str, str]

    def __init__(self, engine: Engine, *, read: str) -> None:
        self._engine, self._read = engine, read
        self._tokens: VerdictTokens | None = None

    async def prepare(self) -> None:
        """Find the verdict tokens, if verdicts are read from token log-probabilities."""
        engine = self._engine
        if self._read == "text":
            return
        probe = engine.encode(PROBE)[:1]
        if await engine.logprobs(engine.prompt_ids(PROBE), (), probe) is not None:
            self._tokens = VerdictTokens.from_texts(engine, self.question, self.answers)

    async def _sample_completion(
        self,
        prompt: tuple[int, ...],
        prefix: tuple[int, ...],
        *,
        chain_index: int,
        max_tokens: int,
        stop: Sequence[str],
    ) -> Completion:
        name = content_id("chain", prompt, prefix)
        return await self._engine.sample(
            prompt,
            prefix,
            seed=derive_sampling_seed(0, name, str(max_tokens), chain_index),
            **build_limit_arguments(len(prefix) + max_tokens, stop),
        )

    def _cut_before_stop_text(
        self, completion: Completion, stop_texts: Sequence[str]
    ) -> tuple[tuple[int, ...], str]:
        """Return the token ids before the stop text that ended a completion, and their text."""
        places = [completion.text.find(stop) for stop in stop_texts]
        end = min((place for place in places if place >= 0), default=len(completion.text))
        ids = completion.ids
        while ids and len(self._engine.decode(ids)) > end:
            ids = ids[:-1]
        return ids, completion.text[:end]


class AllStepsVerifier(_EngineVerifier):
    """Verifier whose single chain covers all steps: ThinkPRM, or the user's own template."""

    question, answers = WHOLE_QUESTION, WHOLE_VERDICTS

    def __init__(self, engine: Engine, template: str, *, read: str) -> None:
        """Make a verifier.

        Args:
            engine: engine that runs the model.
            template: `thinkprm`, or the text of the user's own template.
            read: form in which a verdict is read: `token` reads the probability of the verdict's
                token if the engine gives it, `text` always reads the words.
        """
        super().__init__(engine, read=read)
        self._is_built_in = template == "thinkprm"
        self._template = THINKPRM if self._is_built_in else Template(template.strip(), PARSER)
        self._start = THINKPRM_START if self._is_built_in else ""

    def first_prompt_ids(self, problem: str, steps: Sequence[str]) -> tuple[int, ...]:
        """Return the token ids of the prompt."""
        return self._engine.prompt_ids(fill_critic_prompt(self._template, problem, steps))

    @property
    def num_fixed_tokens(self) -> int:
        """Number of tokens of the chain's fixed beginning, of the question, and of its answer."""
        return len(self._engine.encode(self._start)) + len(self._engine.encode(self.question)) + 1

    async def sample_chain(
        self, problem: str, steps: Sequence[str], *, chain_index: int, max_tokens: int
    ) -> Chain:
        """Sample a chain; read its verdicts on steps, and the verdict on the whole solution."""
        prompt, start = self.first_prompt_ids(problem, steps), self._engine.encode(self._start)
        stops = (*THINKPRM_STOPS, f"Step {len(steps) + 1}:") if self._is_built_in else ()
        try:
            completion = await self._sample_completion(
                prompt, start, chain_index=chain_index, max_tokens=max_tokens, stop=stops
            )
        except RequestFailed as error:
            return Chain(reason=str(error)[:MAX_REASON])
        num_tokens = len(completion.ids)
        if completion.finish_reason != "stop":
            return Chain(reason="truncated", num_tokens=num_tokens)
        vote = parse_output(completion.text, PARSER, len(steps), truncated=False)
        if not vote.is_known:
            return Chain(reason=vote.reason, num_tokens=num_tokens)
        chance = None
        if self._tokens is not None:
            ids, _ = self._cut_before_stop_text(completion, stops)
            chance = await self._tokens.estimate_correct_probability(
                self._engine, prompt, (*start, *ids)
            )
        is_right = vote.first_error is None
        if chance is not None and (chance >= CERTAIN) != is_right:
            return Chain(reason="verdict on the whole contradicts the steps", num_tokens=num_tokens)
        last = float(is_right) if chance is None else chance
        sound = len(steps) - 1 if vote.first_error is None else vote.first_error
        return Chain(scores=(1.0,) * sound + (last,) * (len(steps) - sound), num_tokens=num_tokens)


class StepByStepVerifier(_EngineVerifier):
    """Verifier that asks about each step in its own chat turn: GenPRM without code."""

    question, answers = GENPRM_QUESTION, GENPRM_VERDICTS

    def first_prompt_ids(self, problem: str, steps: Sequence[str]) -> tuple[int, ...]:
        """Return the token ids of a chat with the problem and all steps, without analyses."""
        return self._encode_chat_with_question([], "\n".join((problem, *steps)))

    @property
    def num_fixed_tokens(self) -> int:
        """Number of tokens of the fixed texts around an analysis, and of a judgement."""
        texts = (GENPRM_START.format(number=1_000), self.question, GENPRM_END)
        return sum(len(self._engine.encode(text)) for text in texts) + JUDGEMENT_TOKENS

    async def prepare(self) -> None:
        """Check that the engine renders chats, and find the tokens of judgements."""
        self._encode_chat_with_question([], PROBE)
        await super().prepare()

    async def sample_chain(
        self, problem: str, steps: Sequence[str], *, chain_index: int, max_tokens: int
    ) -> Chain:
        """Ask about each step in turn. If one gets no judgement, the whole chain is unknown."""
        turns: list[tuple[str, str]] = []
        scores: list[float] = []
        num_tokens = 0
        for index, step in enumerate(steps):
            asked = f"{problem.strip()}\n{step.strip()}" if not index else step.strip()
            prompt, first = (
                self._encode_chat_with_question(turns, asked),
                GENPRM_START.format(number=index + 1),
            )
            start = self._engine.encode(first)
            try:
                completion = await self._sample_completion(
                    prompt,
                    start,
                    chain_index=chain_index,
                    max_tokens=max_tokens,
                    stop=(GENPRM_STOP,),
                )
                num_tokens += len(completion.ids)
                if completion.finish_reason != "stop":
                    return Chain(reason=f"truncated at step {index + 1}", num_tokens=num_tokens)
                ids, analysis = self._cut_before_stop_text(completion, (GENPRM_STOP,))
                score, num_more = await self._score_analysis(prompt, (*start, *ids), chain_index)
            except RequestFailed as error:
                return Chain(reason=str(error)[:MAX_REASON], num_tokens=num_tokens)
            num_tokens += num_more
            if score is None:
                return Chain(reason=f"no judgement on step {index + 1}", num_tokens=num_tokens)
            scores.append(score)
            verdict = self.answers[score < CERTAIN]
            turns.append((asked, f"{first}{analysis}{self.question}{verdict}{GENPRM_END}"))
        return Chain(scores=tuple(scores), num_tokens=num_tokens)

    async def _score_analysis(
        self, prompt: tuple[int, ...], prefix: tuple[int, ...], chain_index: int
    ) -> tuple[float | None, int]:
        """Return the score of a step from the judgement after its analysis.

        Also return the number of tokens that were sampled for the judgement. The score is None if
        there is no readable judgement.
        """
        if self._tokens is not None:
            return await self._tokens.estimate_correct_probability(self._engine, prompt, prefix), 0
        forced = (*prefix, *self._engine.encode(self.question))
        completion = await self._sample_completion(
            prompt, forced, chain_index=chain_index, max_tokens=JUDGEMENT_TOKENS, stop=("}",)
        )
        judgement = _JUDGEMENT.match(completion.text)
        return None if judgement is None else float(judgement[1].lower() == "yes"), len(
            completion.ids
        )

    def _encode_chat_with_question(
        self, turns: Sequence[tuple[str, str]], question: str
    ) -> tuple[int, ...]:
        ids = self._engine.chat_ids(turns, question)
        if ids is None:
            raise ConfigError(
                "generative.template=genprm: needs a chat template, but the model has none, "
                "generative.policy.template is set, or the engine renders no chat. Remove "
                "generative.policy.template, or choose generative.template=thinkprm"
            )
        return ids


def make_verifier(engine: Engine, template: str, *, read: str) -> Verifier:
    """Return the verifier for a template.

    Args:
        engine: engine that runs the model.
        template: `thinkprm`, `genprm`, or the text of the user's own template.
        read: form in which a verdict is read: `token` reads the probability of the verdict's token
            if the engine gives it, `text` always reads the words.
    """
    if template == "genprm":
        return StepByStepVerifier(engine, read=read)
    return AllStepsVerifier(engine, template, read=read)
