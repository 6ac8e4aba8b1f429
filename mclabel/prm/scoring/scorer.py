"""What scores steps, of whatever format, and how it is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from mclabel.errors import ConfigError, EngineError

if TYPE_CHECKING:
    from mclabel.prm.examples.encode import EncodedSolution
    from mclabel.prm.scoring.settings import ScorerSettings

OWN_FORMAT = "mclabel"
FORMATS: Mapping[str, str] = {
    OWN_FORMAT: "mclabel.prm.scoring.score:PRM",
    "trl": "mclabel.prm.scoring.adapters:TrlPRM",
    "math-shepherd": "mclabel.prm.scoring.adapters:ShepherdPRM",
    "rlhflow": "mclabel.prm.scoring.adapters:RlhflowPRM",
    "qwen": "mclabel.prm.scoring.adapters:QwenPRM",
}
"""Names of the formats of PRMs, and where the class stands that scores with one."""


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


def load_prm(settings: ScorerSettings, *, threads: int | None = None) -> Scorer:
    """A PRM of any format.

    Args:
        settings: which PRM, and where it computes.
        threads: of our own format on a CPU; None for one a core.

    Raises:
        ConfigError: a server is given for another format than ours.
        DataError: there is no finished PRM.
        EngineError: it cannot be loaded.
    """
    form, trusted = settings.format, settings.trust_remote_code
    if settings.url is not None:
        if form != OWN_FORMAT:
            raise ConfigError(
                f"--url {settings.url}: `mclabel serve` serves PRMs of --format {OWN_FORMAT}, not "
                f"{form}. Leave out one of the two"
            )
        from mclabel.prm.scoring.served import ServedPRM

        return ServedPRM.connect(settings.url, settings.prm, trust_remote_code=trusted)
    module, _, name = FORMATS[form].partition(":")
    scorer: Any = getattr(import_module(module), name)
    try:
        more = {"threads": threads} if form == OWN_FORMAT else {}
        loaded = scorer.load(
            settings.prm, device=settings.device, trust_remote_code=trusted, **more
        )
        return cast(Scorer, loaded)
    except EngineError as error:
        if form == OWN_FORMAT:
            raise
        raise EngineError(f"--format {form}: {error}") from error
