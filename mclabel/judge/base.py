"""The interface of judges. A judge gives an opinion on where the first error of a solution is,
without rollouts.

An opinion is not a label. Labels are made when opinions are combined (`mclabel.judge.consensus`),
which learns how reliable each judge is. If a judge cannot decide, its opinion is unknown, which
does not mean "no error".
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Protocol, cast, get_args

from pydantic import Field, FiniteFloat

from mclabel.core.boundary import check_item_count, make_guarded
from mclabel.core.components import load_component_class
from mclabel.core.errors import ConfigError, RejectReason
from mclabel.core.records import Claim, FinishReason, Flag, Index, Probability, TupleOf
from mclabel.core.settings import ComponentSettings, Count
from mclabel.engines.devices import ONE_CPU, EngineResources
from mclabel.prm.scoring.items import SolutionItem
from mclabel.prm.scoring.layout import OUR_SPLIT
from mclabel.run.task import RunnerState

UNKNOWN_VOTE = -1
"""Value of a vote without a readable answer."""


@dataclass(frozen=True, kw_only=True)
class JudgedItem(SolutionItem):
    """A solution to be judged. Its steps are texts."""

    steps: tuple[str, ...]
    reference: str | None = None
    """The problem's gold answer or reference solution; None if the input has neither."""

    def content(self) -> tuple[str, ...]:
        """Return the texts that identify the item: the whole row and the reference."""
        return (self.row, self.reference or "")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Answer of a language model to a prompt of a judge."""

    prompt: str
    """Hash of the prompt's text."""
    number: Count
    """Index of this answer among the answers to the same prompt, from 0."""
    max_tokens: Count
    """Maximum number of tokens that was allowed for the answer."""
    text: str
    finish_reason: FinishReason
    """Reason why sampling ended. With `failed` there is no answer, and `text` is the error."""
    num_tokens: Count | None
    """Number of sampled tokens; None if the service does not report it."""

    @property
    def key(self) -> tuple[str, int, int]:
        """Key by which a recorded answer is found: prompt hash, answer number and token limit."""
        return self.prompt, self.number, self.max_tokens


@dataclass(frozen=True, kw_only=True)
class Opinion:
    """Opinion of a judge on one solution."""

    is_known: bool
    """True if the judge could decide. If False, `first_error` has no meaning."""
    first_error: Index | None = None
    """Index of the first wrong step, from 0; None if the judge finds no error. If `Judge.claim` is
    `at_or_before`, the first error is at this step or before it, and None does not mean that there
    is no error."""
    sureness: Probability | None = None
    """Confidence of the judge, in [0, 1]: the share of votes for its opinion, or the distance of
    the deciding score from the threshold. None if the judge gives no confidence.
    """
    reason: str = ""
    """Reason why the opinion is unknown, or the finding that led to the opinion."""
    votes: TupleOf[Annotated[int, Field(ge=UNKNOWN_VOTE)]] = ()
    """Votes of a judge that samples several answers. Each vote is the 0-based index of the step
    that it calls the first error, the number of steps if it finds no error, or `UNKNOWN_VOTE`."""
    scores: TupleOf[FiniteFloat] = ()
    """Scores of the steps, one per step; empty if the judge does not score steps."""
    flags: TupleOf[Flag] = ()
    """Places in the steps that the judge marks as wrong."""
    answers: TupleOf[Answer] = ()
    """Answers of the judge's language model, from which the votes were read; empty without a
    model."""
    num_tokens: Count | None = 0
    """Number of sampled tokens, or of read tokens if the judge samples none. None if the number of
    tokens of an answer is unknown."""


def hash_prompt(prompt: str) -> str:
    """Return 16 hexadecimal digits that identify a prompt's text."""
    return hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class AnswerSampler(Protocol):
    """Function that samples an answer of a judge's language model and records it."""

    async def __call__(self, prompt: str, *, number: int, max_tokens: int) -> Answer:
        """Return one answer to a prompt; a recorded answer is not sampled again.

        Args:
            prompt: text of the user's message.
            number: index of this answer among the answers to the prompt, from 0.
            max_tokens: maximum number of tokens of the answer.

        Raises:
            EngineDied: the engine has died; the solution is judged again on another engine.
        """


class JudgeSettings(ComponentSettings):
    """Base class of the settings of judges."""

    component_kind: ClassVar[str] = "judges"


class Judge(ABC):
    """A judge, which gives opinions on solutions. Derive your own judge from this class.

    `Settings` is the class of the judge's settings. A configuration names the judge with the key
    `kind` and has the judge's settings beside that key.
    """

    Settings: ClassVar[type[JudgeSettings]] = JudgeSettings
    claim: ClassVar[Claim] = "where"
    """Kind of statement about the first error that the judge's opinions make: `where` (its step, or
    that there is none), `at_or_before` (a step at or after it), or `scores` (one score per
    step)."""
    version: ClassVar[str] = "1"
    """Version of the judge, which must change whenever its opinions may change. A run cannot be
    resumed with a different version."""
    settings: Any
    num_cpus: float | None = None
    """Number of CPUs that are reserved for the judge; None lets it use all CPUs of its machine.
    `make_judge` sets it."""

    def __init__(self, settings: Any, *, seed: int = 0) -> None:
        """Make a judge without loading anything.

        Args:
            settings: an instance of `Settings`.
            seed: seed of the run.
        """
        self.settings, self.seed = settings, seed

    @classmethod
    def resolve_settings(cls, settings: Any, recorded: Mapping[str, Any]) -> Any:
        """Return the settings with names resolved, such as paths made absolute.

        This happens before a judge is made.

        Args:
            settings: an instance of `Settings`.
            recorded: recorded judge settings of the run that is resumed; empty for a new run.
        """
        return settings

    @classmethod
    def check_input(cls, settings: Any, problems: Callable[[], Iterable[str]]) -> None:
        """Check that no setting, such as a threshold, is chosen on the judged problems.

        Args:
            settings: settings of the judge, before `resolve_settings` has resolved them.
            problems: function that returns the texts of the problems that are judged.

        Raises:
            DataError: a judged problem is also used to choose a setting.
        """
        return None

    @classmethod
    def split_rule(cls, settings: Any) -> str:
        """Return the name of the rule of `split_into_steps` that splits a solution text into steps.

        Args:
            settings: an instance of `Settings`.
        """
        return OUR_SPLIT

    def identity_inputs(self) -> dict[str, Any]:
        """Return further inputs that opinions depend on, such as the hash of a model's weights.

        Returns:
            JSON values by name. A value with the name of a setting replaces that setting in the
            run's identity: the hash of the weights, for instance, replaces their path.

        Raises:
            ConfigError: a setting names something that does not exist.
        """
        return {}

    def prompt_inputs(self) -> dict[str, Any]:
        """Return the values from which the prompts of the judge's language model are built.

        Returns:
            JSON values that are recorded in the run, so that its prompts can be built again. Empty
            if the judge has no language model that explains its opinions.
        """
        return {}

    def check_ready(self) -> None:
        """Check that everything the judge needs is available, before a job writes anything.

        Raises:
            MclabelError: something is missing; the message has the remedy.
        """
        return

    def resources(self) -> EngineResources:
        """Return the numbers of CPUs and GPUs that the judge needs on a cluster."""
        return ONE_CPU

    async def start(self) -> None:
        """Load models and other data, on the machine where the judge runs."""
        return

    @abstractmethod
    async def judge(self, item: JudgedItem, ask: AnswerSampler) -> Opinion | RejectReason:
        """Give an opinion on a solution. Calls for many solutions run concurrently.

        Args:
            item: the solution.
            ask: function that samples an answer of the judge's language model and records it.

        Returns:
            The opinion, or the reason why the solution cannot be judged. In the latter case the job
            lists the solution among its rejects.

        Raises:
            EngineDied: the engine of the judge has died.
            DataError: the solution cannot be judged; the job rejects it with the reason
                `not_judged`.
        """

    async def sample(self, prompt: str, *, number: int, max_tokens: int) -> Answer:
        """Sample an answer of the language model. The job calls this method for `ask`."""
        raise NotImplementedError(f"{type(self).__name__} has no language model to ask")

    def state(self) -> RunnerState:
        """Return progress and load for displays; callable from any thread, also before `start`."""
        return RunnerState()

    async def close(self) -> None:
        """Free the resources that `start` has loaded."""
        return


def make_judge(settings: JudgeSettings, *, seed: int, num_cpus: float | None = None) -> Judge:
    """Make the judge that settings name, without loading anything.

    The judge is wrapped so that its return values are checked (`mclabel.core.boundary`).

    Args:
        settings: settings of the judge.
        seed: seed of the run.
        num_cpus: number of CPUs reserved for the judge; None lets it use all CPUs of its machine.

    Raises:
        ConfigError: the settings do not name a judge.
        ComponentError: the judge cannot be made.
    """
    judge = make_guarded(Judge, settings, seed=seed, rules={"judge": _find_opinion_fault})
    judge.component.num_cpus = num_cpus
    return cast(Judge, judge)


def find_judge_class(settings: JudgeSettings) -> type[Judge]:
    """Return the judge class that settings name.

    Raises:
        ConfigError: the class is not a judge, or its claim is invalid.
    """
    target: type[Judge] = load_component_class(settings, Judge)
    if target.claim not in get_args(Claim):
        raise ConfigError(
            f"judge={settings.kind}: its claim is {target.claim!r}, must be one of "
            f"{', '.join(get_args(Claim))}"
        )
    return target


def _find_opinion_fault(
    opinion: Opinion | RejectReason, item: JudgedItem, ask: object
) -> str | None:
    if isinstance(opinion, RejectReason):
        return None
    steps, error = len(item.steps), opinion.first_error
    if error is not None and error >= steps:
        return f"gave first_error={error} (int), must give None or an index below {steps}"
    if error is not None and not opinion.is_known:
        return f"gave first_error={error} with is_known=False, must give None"
    if opinion.scores and (fault := check_item_count("scores for", opinion.scores, "step", steps)):
        return fault
    if max(opinion.votes, default=0) > steps:
        return f"gave votes={opinion.votes}, must give whole numbers from -1 to {steps}"
    for flag in opinion.flags:
        if flag.step >= steps:
            return f"gave a flag on step {flag.step}, must give one below {steps}"
        if not flag.start <= flag.end <= (length := len(item.steps[flag.step])):
            return (
                f"gave a flag on characters {flag.start} to {flag.end}, must lie within the "
                f"{length} of its step"
            )
    return None
