"""Settings of scorers, the interface `Scorer`, and loading of PRMs in any format.

A generative PRM is a language model that writes a verification of the steps (a chain) and then a
verdict. Its scores are computed by `mclabel.judge.generative`, which reads chains in the same way
as the answers of critics.
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
    describe_faults,
    rule,
)
from mclabel.engines import Engine, EngineStats, make_engine
from mclabel.engines.devices import AUTO, EngineResources, resolve_device
from mclabel.engines.settings import PolicySettings, name_section_in_errors
from mclabel.prm.scoring import FORMATS, GENERATIVE, OWN_FORMAT
from mclabel.prm.scoring.layout import OUR_SPLIT, LayoutSettings, merge_layout_settings
from mclabel.prm.scoring.manifest import PrmManifest, find_model_folder

if TYPE_CHECKING:
    from mclabel.prm.examples.encode import EncodedSolution
    from mclabel.prm.scoring.aggregate import UnscoredError


BUILT_IN = ("thinkprm", "genprm")
"""Names of the built-in templates: ThinkPRM (arXiv 2504.16828) and GenPRM without code
(arXiv 2504.00891)."""
POLICY = "generative.policy"
"""Configuration key of a generative PRM's sampling settings, for error messages."""
MAX_CHAINS = 1_024
"""Maximum number of verification chains per solution."""
PLACEHOLDERS = ("{problem}", "{steps}")
"""Placeholders that a template of one's own must contain."""


class VerifierPolicySettings(PolicySettings):
    """Settings that run and sample a generative PRM. Accepts the same keys as `policy`, except
    `model`.
    """

    temperature: float = Field(0.6, ge=0, le=2)
    """Sampling temperature of the chains. With 0, all chains of a solution are the same."""
    top_p: float = Field(0.95, gt=0, le=1)
    """Nucleus sampling: total probability of the tokens to sample from."""
    max_tokens: int = Field(4_096, ge=1, le=MAX_TOKENS)
    """Maximum number of tokens in a chain. A truncated chain is sampled again with twice this
    number."""


class GenerativeSettings(Settings):
    """Settings of a generative PRM: its prompt, the number of chains, and the form of verdicts."""

    template: str = Field("thinkprm", min_length=1)
    r"""Prompt template: `thinkprm`, `genprm`, or a string that contains {problem} and {steps}. The
    text must ask for \boxed{correct} or \boxed{incorrect} for every step."""
    least_chains: int = Field(4, ge=1, le=MAX_CHAINS)
    """Minimum number of finished chains per solution. If these agree, no more are sampled."""
    most_chains: Annotated[
        int, at_most(MAX_CHAINS, "all of a solution's chains are sampled on one engine")
    ] = Field(4, ge=1)
    """Maximum number of chains per solution, sampled if the chains disagree."""
    read: Literal["token", "text"] = "token"
    """Form in which verdicts are read. `token` reads the probability of the verdict's token if the
    engine returns it; `text` always reads the verdict's word."""
    policy: VerifierPolicySettings = VerifierPolicySettings()
    """Settings to run and sample the model. The setting `prm` names the model itself."""

    @rule
    def _check_template_name_or_text(self) -> str | None:
        missing = [placeholder for placeholder in PLACEHOLDERS if placeholder not in self.template]
        if self.template in BUILT_IN or not missing:
            return None
        return (
            f"template={self.template[:100]!r}: must be {' or '.join(BUILT_IN)}, or a string that "
            f"contains {' and '.join(PLACEHOLDERS)}. Choose one of these, or add "
            f"{' and '.join(missing)}"
        )

    @rule
    def _check_least_chains(self) -> str | None:
        if self.least_chains > self.most_chains:
            return (
                f"least_chains={self.least_chains}: must be at most most_chains="
                f"{self.most_chains}. Lower least_chains, or raise most_chains"
            )
        return None

    @rule
    def _check_model_named_once(self) -> str | None:
        if (
            self.policy.model == VerifierPolicySettings().model
            and not self.policy.trust_remote_code
        ):
            return None
        return (
            "policy.model and policy.trust_remote_code: are taken from prm and trust_remote_code "
            "of the scorer. Remove them here"
        )

    @rule
    def _check_no_few_shot_examples(self) -> str | None:
        if not self.policy.few_shot:
            return None
        return (
            "policy.few_shot: does not apply to a generative PRM, whose prompt contains only the "
            "solution. Remove few_shot, or write the examples into template"
        )

    def make_engine_for_model(self, prm: str, *, trust_remote_code: bool) -> Engine:
        """Return the engine that runs the model `prm`. It is not started.

        Raises:
            ConfigError: no engine fits the settings.
        """
        with name_section_in_errors(POLICY):
            return make_engine(
                self.policy.with_changes(model=prm, trust_remote_code=trust_remote_code)
            )


class ScorerSettings(Settings):
    """Settings of a scorer: its PRM, and the device or server that computes the scores."""

    prm: str
    """Folder of the PRM. For formats other than `mclabel`, also its Hugging Face name."""
    format: Annotated[str, OneOf(tuple(FORMATS))] = OWN_FORMAT
    """Format of the PRM: `mclabel`, `trl`, `math-shepherd`, `rlhflow`, `qwen` or `generative`
    (docs/generative.md)."""
    layout: LayoutSettings = LayoutSettings()
    """Layout of solutions for a PRM of another format, if its checkpoint departs from the format's
    usual layout.
    """
    generative: GenerativeSettings = GenerativeSettings()
    """Settings of a PRM with format=generative."""
    device: Annotated[str, OPERATIONAL] = AUTO
    """PyTorch device of the scorer. `auto` takes cuda if the machine that runs the command has a
    GPU."""
    url: Annotated[str | None, OPERATIONAL] = None
    """URL of a server that `mclabel serve` started for the same PRM; null computes the scores in
    this process."""
    trust_remote_code: Annotated[TrustsCode, OPERATIONAL] = False
    """True if the PRM's own Python code may run (command line only)."""

    @property
    def on_gpu(self) -> bool:
        """Return whether the scorer computes on a GPU of its own, and not through a server."""
        if self.format == GENERATIVE:
            return self.resources().num_gpus > 0
        return self.url is None and resolve_device(self.device) != "cpu"

    @property
    def text_split(self) -> str:
        """Return the rule that splits a solution given as one text into steps."""
        if self.format in (OWN_FORMAT, GENERATIVE):
            return OUR_SPLIT
        return str(merge_layout_settings(self.format, self.layout).split)

    def resources(self, num_cpus: float = 1) -> EngineResources:
        """Return the cluster resources of the scorer.

        These are the resources of its engine if it has one, else one GPU or some CPU cores.

        Args:
            num_cpus: number of cores of a scorer that computes on a CPU without an engine.
        """
        if self.format == GENERATIVE:
            return self.engine().resources()
        return EngineResources(num_gpus=1) if self.on_gpu else EngineResources(num_cpus=num_cpus)

    def check_prm(self) -> None:
        """Check that the PRM exists, without reading its weights.

        Only the formats `mclabel` and `generative` are checked.

        Raises:
            DataError: format=mclabel, and there is no finished PRM.
            MclabelError: format=generative, and the engine lacks a requirement or its model is
                missing.
        """
        if self.format == GENERATIVE:
            with name_section_in_errors(POLICY):
                engine = self.engine()
                engine.check_environment()
                engine.check_model()
        elif self.format == OWN_FORMAT:
            PrmManifest.read(find_model_folder(self.prm))

    def engine(self) -> Engine:
        """Return the engine of a generative PRM. It is not started."""
        return self.generative.make_engine_for_model(
            self.prm, trust_remote_code=self.trust_remote_code
        )

    @rule
    def _check_generative_prm_has_engine(self) -> str | None:
        if self.format != GENERATIVE:
            if self.generative == GenerativeSettings():
                return None
            return (
                f"generative: configures a generative PRM, but format={self.format}. Set "
                f"format={GENERATIVE}, or remove generative"
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
    def _check_layout_needs_other_format(self) -> str | None:
        if self.format == GENERATIVE and self.layout != LayoutSettings():
            return (
                f"layout: does not apply to format={GENERATIVE}, whose prompt is set by "
                "generative.template. Remove layout"
            )
        if self.format == OWN_FORMAT and self.layout != LayoutSettings():
            return (
                f"layout: is for PRMs of other formats, but format={OWN_FORMAT}. Remove layout, "
                "because a PRM of this format stores its own layout"
            )
        if self.format == "rlhflow" and self.layout.separator is not None:
            return (
                "layout.separator: does not apply to format=rlhflow, in which every step is a turn "
                "of a chat. Remove layout.separator"
            )
        return None


class Scorer(Protocol):
    """Gives a score in [0, 1] for every step of a solution."""

    def encode(
        self, problem: str, solution: str | Sequence[str], name_in_errors: str = "solution"
    ) -> EncodedSolution:
        """Encode a solution for the scorer.

        Args:
            problem: text of the problem.
            solution: text of the solution with a step per line, or the texts of its steps.
            name_in_errors: description of the solution for error messages.

        Raises:
            TooLongError: the solution is longer than the scorer accepts.
            DataError: the solution cannot be encoded.
        """
        ...

    def score(
        self, problems: Sequence[str], solutions: Sequence[str | Sequence[str]]
    ) -> Sequence[list[float] | UnscoredError]:
        """Return for each solution one score in [0, 1] per step, or an error that says why not."""
        ...

    def score_encoded(
        self, encoded: Sequence[EncodedSolution]
    ) -> Sequence[list[float] | UnscoredError]:
        """Score encoded solutions as `score` does."""
        ...


def close_scorer(scorer: object) -> None:
    """Release the resources of a scorer, such as the engine of a generative PRM."""
    close = getattr(scorer, "close", None)
    if close is not None:
        close()


def get_engine_stats(scorer: object) -> EngineStats | None:
    """Return the statistics of a scorer's engine; None for a scorer that does not sample."""
    stats = getattr(scorer, "stats", None)
    return None if stats is None else cast(EngineStats, stats())


def load_prm(path: str | Path, *, threads: int | None = None, **settings: Any) -> Scorer:
    """Load a PRM of any format.

    Args:
        path: output folder of `mclabel train`. For another format, a folder or Hugging Face name.
        threads: number of CPU threads of a PRM of the format `mclabel`; None uses one thread per
            core.
        settings: fields of `ScorerSettings`, such as `format="trl"`.

    Raises:
        ConfigError: a setting is wrong, or `url` is given for a format other than `mclabel`.
        DataError: the path holds no finished PRM.
        EngineError: the PRM cannot be loaded.
    """
    try:
        checked = ScorerSettings(prm=str(path), **settings)
    except ValidationError as error:
        raise ConfigError(
            f"load_prm: {describe_faults(ScorerSettings, error, 'settings')}"
        ) from error
    return load_scorer(checked, threads=threads)


def load_scorer(settings: ScorerSettings, *, threads: int | None = None) -> Scorer:
    """Load the PRM that settings describe."""
    path, form, url = settings.prm, settings.format, settings.url
    trusted = settings.trust_remote_code
    if url is not None:
        if form != OWN_FORMAT:
            raise ConfigError(
                f"url={url}: `mclabel serve` serves PRMs of format={OWN_FORMAT}, not {form}. "
                "Remove url, or remove format"
            )
        from mclabel.prm.scoring.served import ServedPRM

        return ServedPRM.connect(url, path, trust_remote_code=trusted)
    module, _, name = FORMATS[form].partition(":")
    scorer: Any = getattr(import_module(module), name)
    try:
        if form == GENERATIVE:
            return cast(Scorer, scorer.load(settings))
        more = {"threads": threads} if form == OWN_FORMAT else {"layout": settings.layout}
        return cast(
            Scorer, scorer.load(path, device=settings.device, trust_remote_code=trusted, **more)
        )
    except (EngineError, DataError) as error:
        if form == OWN_FORMAT or isinstance(error, UntrustedCodeError):
            raise
        raise EngineError(f"{path}: format={form}: {error}") from error
