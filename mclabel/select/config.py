"""Configuration of selections."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mclabel.core.settings import MAX_COUNT, OPERATIONAL, OneOf, Seed
from mclabel.core.settings import rule as checked
from mclabel.engines.devices import AUTO
from mclabel.judge.config import RunsHere
from mclabel.prm.scoring.aggregate import Aggregation
from mclabel.prm.scoring.formats import FORMATS, OWN_FORMAT

MAX_EXCLUDED = 1000


class SelectConfig(RunsHere):
    """A selection of solutions to be labelled."""

    solutions: Annotated[str, OPERATIONAL]
    """Solutions: a file, or the folder or URL of a run of `mclabel label`."""
    out: Annotated[str, OPERATIONAL]
    """Manifest to write: a file that ends in .parquet."""
    rule: str
    """How the rule's part of the budget is spent: `uniform`, `convincing`, `uncertain`, or
    `module:function` of your own (docs/select.md)."""
    budget: int = Field(ge=1, le=MAX_COUNT)
    """Number of solutions to choose."""
    prm: str | None = None
    """PRM that scores the pool, and writes `OUT.scores.jsonl` for later selections."""
    scores: Annotated[str | None, OPERATIONAL] = None
    """Scores of this pool by `mclabel score`, a file or a run, in place of `prm`."""
    uniform_share: float = Field(0.15, ge=0, le=1)
    """Share of the budget drawn at random (at least one solution unless 0), which makes means over
    the pool unbiased. rule=uniform draws all."""
    per_problem: int | None = Field(None, ge=1, le=MAX_COUNT)
    """Maximum number of solutions that the rule chooses of one problem. Problems take turns in any
    case."""
    aggregation: Aggregation = "min"
    """How step scores become one for rule=convincing: last, min, product, mean, max or log_odds."""
    seed: Seed = 0
    """Seed of the uniform draw and of ties."""
    exclude: list[str] = Field([], max_length=MAX_EXCLUDED)
    """Manifests of earlier selections from this pool. Their solutions, and equal texts, are left
    out."""
    format: Annotated[str, OneOf(tuple(FORMATS))] = OWN_FORMAT
    """Format of the PRM: `mclabel`, `trl`, `math-shepherd`, `rlhflow`, `qwen`, or `generative` (a
    language model that writes a verification)."""
    device: Annotated[str, OPERATIONAL] = AUTO
    """PyTorch device that computes the scores. `auto` takes cuda if the machine of the command has
    a GPU; each Ray worker then reserves one."""

    @checked
    def _the_manifest_is_a_parquet_file(self) -> str | None:
        if not self.out.endswith(".parquet") or "://" in self.out:
            return f"out={self.out}: must be a local file that ends in .parquet. Rename it"
        return None

    @checked
    def _scores_come_from_one_place(self) -> str | None:
        if self.prm is not None and self.scores is not None:
            return "prm and scores are both given. Give only one of the two"
        return None
