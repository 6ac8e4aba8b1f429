"""The interface of judges. A judge gives an opinion on the steps of a solution, without
rollouts.

An opinion is evidence on the first error, never a label: what it is worth is learned where opinions
are combined (`mclabel.judge.consensus`). One that could not be had is unknown, never "no error".
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Protocol, cast, get_args

from pydantic import Field, FiniteFloat

from mclabel.core.boundary import guarded, miscounted
from mclabel.core.components import derived_class
from mclabel.core.errors import ConfigError, RejectReason
from mclabel.core.records import Chance, Claim, FinishReason, Flag, Index, Many
from mclabel.core.settings import ComponentSettings, Count
from mclabel.engines.devices import ONE_CPU, EngineResources
from mclabel.prm.scoring.items import SolutionItem
from mclabel.prm.scoring.layout import OUR_SPLIT
from mclabel.run.task import RunnerState

UNKNOWN_VOTE = -1
"""A vote that could not be had."""


@dataclass(frozen=True, kw_only=True)
class JudgedItem(SolutionItem):
    """A solution to be judged. Its steps are texts."""

    steps: tuple[str, ...]
    reference: str | None = None
    """The problem's gold answer, or its reference solution, where the input has one."""

    def content(self) -> tuple[str, ...]:
        """The whole row, and the reference."""
        return (self.row, self.reference or "")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Answer of a language model to a judge."""

    prompt: str
    """Hash of the prompt's text."""
    number: Count
    """Counts the answers to one prompt."""
    max_tokens: Count
    """Most tokens that it could have."""
    text: str
    finish_reason: FinishReason
    """`failed`: it could not be had, and `text` says why."""
    num_tokens: Count | None
    """Sampled tokens; None if a service does not report them."""

    @property
    def key(self) -> tuple[str, int, int]:
        """Return the key by which an earlier answer is found: prompt, number and limit of
        tokens.
        """
        return self.prompt, self.number, self.max_tokens


@dataclass(frozen=True, kw_only=True)
class Opinion:
    """Opinion of a judge on one solution."""

    is_known: bool
    """True if it has an opinion at all."""
    first_error: Index | None = None
    """Index of the first wrong step, None for none; of a judge that claims `at_or_before`, the
    step at or before which it is, None where it says nothing."""
    sureness: Chance | None = None
    """Confidence of the judge, in [0, 1]: the share of votes for its opinion, or the distance
    of its scores from its threshold. None if there is none.
    """
    reason: str = ""
    """Why it has none, or what it saw."""
    votes: Many[Annotated[int, Field(ge=UNKNOWN_VOTE)]] = ()
    """Votes of a judge that is asked several times: the step that each vote names, the number
    of steps if it names none, `UNKNOWN_VOTE` if there was no answer.
    """
    scores: Many[FiniteFloat] = ()
    """Scores of a scorer, a number for each step."""
    flags: Many[Flag] = ()
    """Places that the judge marks."""
    answers: Many[Answer] = ()
    """Answers of the judge's language model."""
    num_tokens: Count | None = 0
    """Tokens that were sampled, or read where nothing is sampled; None if those of an answer are
    unknown."""


def prompt_hash(prompt: str) -> str:
    """A short name of a prompt's text."""
    return hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Asks(Protocol):
    """Asks the language model of a judge, and keeps what it answers."""

    async def __call__(self, prompt: str, *, number: int, max_tokens: int) -> Answer:
        """One answer to a prompt, which is the same after a kill.

        Args:
            prompt: text of the user's message.
            number: counts the answers to one prompt.
            max_tokens: maximum number of tokens of the answer.

        Raises:
            EngineDied: the engine is gone; the solution is judged again on another one.
        """


class JudgeSettings(ComponentSettings):
    """Settings that every judge has."""

    component_kind: ClassVar[str] = "judges"


class Judge(ABC):
    """Gives opinions. Derive from it for the defaults.

    `Settings` is the class of its settings; a configuration that names the judge by `kind` holds
    the others beside it.
    """

    Settings: ClassVar[type[JudgeSettings]] = JudgeSettings
    claim: ClassVar[Claim] = "where"
    """Kind of statement that its opinions make."""
    version: ClassVar[str] = "1"
    """Version, which must change whenever an opinion may change. A run cannot be resumed with a
    different one."""
    settings: Any
    num_cpus: float | None = None
    """CPUs that are reserved for it, once it is made; None gives it all of its machine."""

    def __init__(self, settings: Any, *, seed: int = 0) -> None:
        """Make a judge, without loading anything.

        Args:
            settings: an instance of `Settings`.
            seed: seed of the run.
        """
        self.settings, self.seed = settings, seed

    @classmethod
    def settled(cls, settings: Any, recorded: Mapping[str, Any]) -> Any:
        """The settings with all that they name looked up, before a judge is made.

        Args:
            settings: an instance of `Settings`.
            recorded: those of the run that is resumed, as it has recorded them; else none.
        """
        return settings

    @classmethod
    def check_input(cls, settings: Any, problems: Callable[[], Iterable[str]]) -> None:
        """See that what the settings were, or will be, chosen on is not what is judged.

        Args:
            settings: before `settled`.
            problems: gives the texts of the problems that are judged.

        Raises:
            DataError: it is.
        """
        return None

    @classmethod
    def split(cls, settings: Any) -> str:
        """Return where the steps of a solution given as one text end; see `split_text`.

        Args:
            settings: an instance of `Settings`.
        """
        return OUR_SPLIT

    def known(self) -> dict[str, Any]:
        """Return what opinions depend on beside the settings, such as the hash of a model's
        weights.

        Returns:
            JSON values by name; one with the name of a setting takes its place, as the hash of
            the weights takes that of a path.

        Raises:
            ConfigError: what a setting names is not there.
        """
        return {}

    def asked(self) -> dict[str, Any]:
        """Return what its language model is asked, where it has one that explains its opinions.

        Returns:
            JSON values, kept in the run, by which its prompts can be written again.
        """
        return {}

    def check(self) -> None:
        """See that all it needs is there, before a job writes anything.

        Raises:
            MclabelError: something is missing; the message has the remedy.
        """
        return

    def resources(self) -> EngineResources:
        """CPUs and GPUs that it takes of a cluster."""
        return ONE_CPU

    async def start(self) -> None:
        """Load what it needs, where it is to live."""
        return

    @abstractmethod
    async def judge(self, item: JudgedItem, ask: Asks) -> Opinion | RejectReason:
        """Give an opinion. Called for many solutions at a time.

        Args:
            item: the solution.
            ask: asks the judge's language model, if it has one.

        Returns:
            The opinion, or why the solution cannot be judged, which sets it aside.

        Raises:
            EngineDied: what it runs on is gone.
            DataError: the solution cannot be judged; it is set aside as `not_judged`.
        """

    async def sample(self, prompt: str, *, number: int, max_tokens: int) -> Answer:
        """Ask the judge's language model; called by what it is given as `ask`."""
        raise NotImplementedError(f"{type(self).__name__} has no language model to ask")

    def state(self) -> RunnerState:
        """Return what it does now; callable from any thread, also before `start`."""
        return RunnerState()

    async def close(self) -> None:
        """Free what `start` has loaded."""
        return


def make_judge(settings: JudgeSettings, *, seed: int, num_cpus: float | None = None) -> Judge:
    """Make the judge that settings name, behind its boundary, without loading anything.

    Args:
        settings: settings of the judge.
        seed: seed of the run.
        num_cpus: see `Judge.num_cpus`.

    Raises:
        ConfigError: they name no judge.
        ComponentError: it cannot be made.
    """
    judge = guarded(Judge, settings, seed=seed, rules={"judge": _fault})
    judge.component.num_cpus = num_cpus
    return cast(Judge, judge)


def judge_class(settings: JudgeSettings) -> type[Judge]:
    """The class that settings name.

    Raises:
        ConfigError: it is no judge.
    """
    target: type[Judge] = derived_class(settings, Judge)
    if target.claim not in get_args(Claim):
        raise ConfigError(
            f"judge={settings.kind}: its claim is {target.claim!r}, must be one of "
            f"{', '.join(get_args(Claim))}"
        )
    return target


def _fault(opinion: Opinion | RejectReason, item: JudgedItem, ask: object) -> str | None:
    if isinstance(opinion, RejectReason):
        return None
    steps, error = len(item.steps), opinion.first_error
    if error is not None and error >= steps:
        return f"gave first_error={error} (int), must give None or an index below {steps}"
    if error is not None and not opinion.is_known:
        return f"gave first_error={error} with is_known=False, must give None"
    if opinion.scores and (fault := miscounted("scores for", opinion.scores, "step", steps)):
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
