"""Scorers of steps in any format, and how they are loaded.

A generative PRM is a language model that writes a verification, then gives a verdict. Its scores
are computed by `mclabel.judge.generative`, which reads chains as critics are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, cast

from pydantic import Field, ValidationError

from mclabel.core.errors import ConfigError, DataError, EngineError, UntrustedCodeError
from mclabel.core.settings import (
    MAX_TOKENS,
    OPERATIONAL,
    OneOf,
    Settings,
    TrustsCode,
    at_most,
    joined_faults,
    rule,
)
from mclabel.engines import Engine, EngineStats, make_engine
from mclabel.engines.devices import AUTO, EngineResources, resolve_device
from mclabel.engines.settings import PolicySettings, settings_of
from mclabel.prm.scoring import FORMATS, GENERATIVE, OWN_FORMAT
from mclabel.prm.scoring.layout import OUR_SPLIT, LayoutSettings, layout_of
from mclabel.prm.scoring.manifest import PrmManifest, model_folder

if TYPE_CHECKING:
    from mclabel.prm.examples.encode import EncodedSolution
    from mclabel.prm.scoring.aggregate import UnscoredError


BUILT_IN = ("thinkprm", "genprm")
"""Names of the built-in templates: ThinkPRM (arXiv 2504.16828) and GenPRM without code
(arXiv 2504.00891)."""
POLICY = "generative.policy"
"""Key of the model's settings, in messages."""
MAX_CHAINS = 1_024
"""Maximum number of chains of one solution."""
PLACEHOLDERS = ("{problem}", "{steps}")


class VerifierPolicySettings(PolicySettings):
    """The way that a generative PRM is run and sampled: the keys of `policy`, but for the model."""

    temperature: float = Field(0.6, ge=0, le=2)
    """Sampling temperature of the chains. 0 makes them all the same."""
    top_p: float = Field(0.95, gt=0, le=1)
    """Nucleus sampling: total probability of the tokens to sample from."""
    max_tokens: int = Field(4_096, ge=1, le=MAX_TOKENS)
    """Maximum number of tokens in a chain; a truncated one is sampled again with twice as many."""


class GenerativeSettings(Settings):
    """The way that a generative PRM verifies a solution, and how its verdict is read."""

    template: str = Field("thinkprm", min_length=1)
    r"""`thinkprm`, `genprm`, or a text with {problem} and {steps} that asks for \boxed{correct} or
    \boxed{incorrect} for every step."""
    least_chains: int = Field(4, ge=1, le=MAX_CHAINS)
    """Minimum number of finished chains for a solution; if they agree, no more are sampled."""
    most_chains: Annotated[
        int, at_most(MAX_CHAINS, "all of a solution's chains are sampled on one engine")
    ] = Field(4, ge=1)
    """Maximum number of chains for a solution whose chains disagree."""
    read: Literal["token", "text"] = "token"
    """Form of a verdict: `token` reads the probability of its token where the engine returns it,
    `text` always reads the word."""
    policy: VerifierPolicySettings = VerifierPolicySettings()
    """The way that the model is run and sampled. The model itself is named by `prm`."""

    @rule
    def _a_template_is_a_name_or_a_text(self) -> str | None:
        missing = [placeholder for placeholder in PLACEHOLDERS if placeholder not in self.template]
        if self.template in BUILT_IN or not missing:
            return None
        return (
            f"template={self.template[:100]!r}: must be {' or '.join(BUILT_IN)}, or a text that "
            f"contains {' and '.join(PLACEHOLDERS)}. Choose one of these, or add "
            f"{' and '.join(missing)}"
        )

    @rule
    def _least_is_at_most_most(self) -> str | None:
        if self.least_chains > self.most_chains:
            return (
                f"least_chains={self.least_chains}: must be at most most_chains="
                f"{self.most_chains}. Lower it, or raise most_chains"
            )
        return None

    @rule
    def _the_model_is_named_once(self) -> str | None:
        usual = VerifierPolicySettings()
        if self.policy.model == usual.model and not self.policy.trust_remote_code:
            return None
        return (
            "policy.model and policy.trust_remote_code: are taken from prm and trust_remote_code "
            "of the scorer. Remove them here"
        )

    @rule
    def _no_examples_are_shown(self) -> str | None:
        if not self.policy.few_shot:
            return None
        return (
            "policy.few_shot: a verifier is shown no examples before a solution. Remove it, or "
            "write them into template"
        )

    def policy_of(self, prm: str, *, trust_remote_code: bool) -> PolicySettings:
        """The policy that runs a model."""
        return self.policy.changed(model=prm, trust_remote_code=trust_remote_code)

    def engine_of(self, prm: str, *, trust_remote_code: bool) -> Engine:
        """The engine that runs a model, not started.

        Raises:
            ConfigError: the settings name no engine.
        """
        with settings_of(POLICY):
            return make_engine(self.policy_of(prm, trust_remote_code=trust_remote_code))


class ScorerSettings(Settings):
    """The settings of a scorer: its PRM, and where the scores are computed."""

    prm: str
    """Folder of the PRM or, for other formats, its Hugging Face name."""
    format: Annotated[str, OneOf(tuple(FORMATS))] = OWN_FORMAT
    """Format of the PRM: `mclabel`, `trl`, `math-shepherd`, `rlhflow`, `qwen` or `generative`
    (docs/generative.md)."""
    layout: LayoutSettings = LayoutSettings()
    """The way that a PRM of another format reads a solution, where it departs from the format's
    authors.
    """
    generative: GenerativeSettings = GenerativeSettings()
    """The way that a PRM with format=generative verifies a solution."""
    device: Annotated[str, OPERATIONAL] = AUTO
    """PyTorch device of the scorer. `auto` takes cuda if the machine of the command has a GPU."""
    url: Annotated[str | None, OPERATIONAL] = None
    """URL of `mclabel serve` with the same PRM."""
    trust_remote_code: Annotated[TrustsCode, OPERATIONAL] = False
    """True if the PRM's own Python code may run (command line only)."""

    @property
    def on_gpu(self) -> bool:
        """Return whether a GPU in this process computes the scores."""
        if self.format == GENERATIVE:
            return self.resources().num_gpus > 0
        return self.url is None and resolve_device(self.device) != "cpu"

    @property
    def text_split(self) -> str:
        """Return where the steps of a solution given as one text end."""
        if self.format in (OWN_FORMAT, GENERATIVE):
            return OUR_SPLIT
        return str(layout_of(self.format, self.layout).split)

    def resources(self, num_cpus: float = 1) -> EngineResources:
        """Return what the scorer takes of a cluster: what its engine does, a GPU, or some cores.

        Args:
            num_cpus: cores of a scorer that computes on a CPU and has no engine.
        """
        if self.format == GENERATIVE:
            return self.engine().resources()
        if self.on_gpu:
            return EngineResources(num_gpus=1)
        return EngineResources(num_cpus=num_cpus)

    def check_prm(self) -> None:
        """See that there is a PRM, without reading its weights.

        Raises:
            DataError: there is no finished one of our own format.
            MclabelError: the engine of a generative one lacks something, or its model does.
        """
        if self.format == GENERATIVE:
            with settings_of(POLICY):
                engine = self.engine()
                engine.check_environment()
                engine.check_model()
        elif self.format == OWN_FORMAT:
            PrmManifest.read(model_folder(self.prm))

    def engine(self) -> Engine:
        """The engine of a generative PRM, not started."""
        return self.generative.engine_of(self.prm, trust_remote_code=self.trust_remote_code)

    @rule
    def _a_generative_prm_has_an_engine(self) -> str | None:
        if self.format != GENERATIVE:
            if self.generative == GenerativeSettings():
                return None
            return (
                f"generative: says how a language model verifies, but format={self.format}. Set "
                f"format={GENERATIVE}, or remove it"
            )
        if self.url is not None:
            return (
                f"url={self.url!r}: names a server of `mclabel serve`, but format={GENERATIVE} is "
                "run by an engine. Set generative.policy.engine.kind=openai and "
                "generative.policy.engine.endpoints instead"
            )
        if self.device != AUTO:
            return (
                f"device={self.device!r}: does not apply to format={GENERATIVE}. Set "
                "generative.policy.engine.device instead"
            )
        return None

    @rule
    def _a_layout_is_of_another_format(self) -> str | None:
        if self.format == GENERATIVE and self.layout != LayoutSettings():
            return (
                f"layout: does not apply to format={GENERATIVE}, which is asked by "
                "generative.template. Remove it"
            )
        if self.format == OWN_FORMAT and self.layout != LayoutSettings():
            return (
                f"layout: says how a PRM of another format reads, but format={OWN_FORMAT}. Remove "
                "it: an own PRM knows its layout"
            )
        if self.format == "rlhflow" and self.layout.separator is not None:
            return (
                "layout.separator: rlhflow has none, as every step is a turn of a chat. Remove it"
            )
        return None


class Scorer(Protocol):
    """Gives a score in [0, 1] for every step of a solution."""

    def encode(
        self, problem: str, solution: str | Sequence[str], place: str = "solution"
    ) -> EncodedSolution:
        """One solution as the scorer reads it.

        Args:
            problem: text of the problem.
            solution: its text with a step a line, or the texts of its steps.
            place: names the solution in errors.

        Raises:
            TooLongError: it is longer than the scorer takes.
            DataError: it cannot be encoded.
        """
        ...

    def score(
        self, problems: Sequence[str], solutions: Sequence[str | Sequence[str]]
    ) -> Sequence[list[float] | UnscoredError]:
        """For every solution a number in [0, 1] a step, or why it has none."""
        ...

    def score_encoded(
        self, encoded: Sequence[EncodedSolution]
    ) -> Sequence[list[float] | UnscoredError]:
        """Score encoded solutions as `score` does."""
        ...


def close_scorer(scorer: object) -> None:
    """Free what a scorer holds beside its memory, such as the engine of a generative PRM."""
    close = getattr(scorer, "close", None)
    if close is not None:
        close()


def engine_stats(scorer: object) -> EngineStats | None:
    """Statistics of the engine of a scorer; None of one that samples nothing."""
    stats = getattr(scorer, "stats", None)
    return None if stats is None else cast(EngineStats, stats())


def load_prm(path: str | Path, *, threads: int | None = None, **settings: Any) -> Scorer:
    """Load a PRM of any format.

    Args:
        path: `out` of `mclabel train`, or of another format a folder or Hugging Face name.
        threads: threads of our own format on a CPU; None for one a core.
        settings: fields of `ScorerSettings`, such as `format="trl"`.

    Raises:
        ConfigError: a setting is wrong, or a server is given for another format than ours.
        DataError: there is no finished PRM.
        EngineError: it cannot be loaded.
    """
    try:
        checked = ScorerSettings(prm=str(path), **settings)
    except ValidationError as error:
        raise ConfigError(
            f"load_prm: {joined_faults(ScorerSettings, error, 'settings')}"
        ) from error
    return load_scorer(checked, threads=threads)


def load_scorer(settings: ScorerSettings, *, threads: int | None = None) -> Scorer:
    """Load the PRM that settings name; see `load_prm`."""
    path, form, url = settings.prm, settings.format, settings.url
    trusted = settings.trust_remote_code
    if url is not None:
        if form != OWN_FORMAT:
            raise ConfigError(
                f"url={url}: `mclabel serve` serves PRMs of format={OWN_FORMAT}, not {form}. "
                "Leave out one of the two"
            )
        from mclabel.prm.scoring.served import ServedPRM

        return ServedPRM.connect(url, path, trust_remote_code=trusted)
    module, _, name = FORMATS[form].partition(":")
    scorer: Any = getattr(import_module(module), name)
    try:
        if form == GENERATIVE:
            return cast(Scorer, scorer.load(settings))
        more = {"threads": threads} if form == OWN_FORMAT else {"layout": settings.layout}
        loaded = scorer.load(path, device=settings.device, trust_remote_code=trusted, **more)
        return cast(Scorer, loaded)
    except (EngineError, DataError) as error:
        if form == OWN_FORMAT or isinstance(error, UntrustedCodeError):
            raise
        raise EngineError(f"{path}: format={form}: {error}") from error
