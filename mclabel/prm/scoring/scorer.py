"""What scores steps, of whatever format, and how it is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, cast

from pydantic import ValidationError

from mclabel.core.errors import ConfigError, DataError, EngineError
from mclabel.core.settings import OPERATIONAL, OneOf, Settings, TrustsCode, joined_faults, rule
from mclabel.engines.devices import AUTO, resolve_device
from mclabel.prm.scoring.formats import FORMATS, OWN_FORMAT
from mclabel.prm.scoring.layout import OUR_SPLIT, LayoutSettings, layout_of

if TYPE_CHECKING:
    from mclabel.prm.examples.encode import EncodedSolution


class ScorerSettings(Settings):
    """The settings of a scorer: its PRM, and where the scores are computed."""

    prm: str
    """Folder of the PRM; for a format other than `mclabel`, its folder or Hugging Face name."""
    format: Annotated[str, OneOf(tuple(FORMATS))] = OWN_FORMAT
    """Format of the PRM: `mclabel`, `trl`, `math-shepherd`, `rlhflow` or `qwen`."""
    layout: LayoutSettings = LayoutSettings()
    """How a PRM of another format reads a solution, where it departs from the format's authors."""
    device: Annotated[str, OPERATIONAL] = AUTO
    """PyTorch device that computes the scores, such as cpu or cuda. `auto` takes cuda if the
    machine on which the command runs has a GPU; a Ray worker then reserves one."""
    url: Annotated[str | None, OPERATIONAL] = None
    """URL of a server that `mclabel serve` started for the same PRM and that computes the scores;
    null computes them in this job."""
    trust_remote_code: Annotated[TrustsCode, OPERATIONAL] = False
    """Whether Python code that comes with the PRM may run. For security it must be passed on the
    command line; a file alone cannot set it."""

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU in this process computes the scores."""
        return self.url is None and resolve_device(self.device) != "cpu"

    @property
    def text_split(self) -> str:
        """Where the steps of a solution given as one text end."""
        if self.format == OWN_FORMAT:
            return OUR_SPLIT
        return str(layout_of(self.format, self.layout).split)

    @rule
    def _a_layout_is_of_another_format(self) -> str | None:
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
    ) -> list[list[float]]:
        """For every solution a number in [0, 1] a step."""
        ...

    def score_encoded(self, encoded: Sequence[EncodedSolution]) -> list[list[float]]:
        """As `score`, for encoded solutions."""
        ...


def load_prm(path: str | Path, *, threads: int | None = None, **settings: Any) -> Scorer:
    """Load a PRM of any format.

    Args:
        path: `out` of `mclabel train`, or of another format a folder or Hugging Face name.
        threads: of our own format on a CPU; None for one a core.
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
                f"--url {url}: `mclabel serve` serves PRMs of --format {OWN_FORMAT}, not {form}. "
                "Leave out one of the two"
            )
        from mclabel.prm.scoring.served import ServedPRM

        return ServedPRM.connect(url, path, trust_remote_code=trusted)
    module, _, name = FORMATS[form].partition(":")
    scorer: Any = getattr(import_module(module), name)
    try:
        more = {"threads": threads} if form == OWN_FORMAT else {"layout": settings.layout}
        loaded = scorer.load(path, device=settings.device, trust_remote_code=trusted, **more)
        return cast(Scorer, loaded)
    except (EngineError, DataError) as error:
        if form == OWN_FORMAT:
            raise
        raise EngineError(f"{path}: --format {form}: {error}") from error
