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
    """Pool to choose from: a file of solutions, or the folder or URL of a labelling run."""
    out: Annotated[str, OPERATIONAL]
    """Manifest to write: a file that ends in .parquet."""
    rule: str
    """How the rule's part of the budget is chosen. `uniform`: at random. `convincing`: 80% are
    wrong or ungraded answers with the highest scores, 20% the highest of the rest. `uncertain`:
    solutions whose first error the PRM can place least. `module:function` of your own returns a
    number for each solution; higher is chosen first."""
    budget: int = Field(ge=1, le=MAX_COUNT)
    """Number of solutions to choose."""
    prm: str | None = None
    """PRM that scores the pool: as for `mclabel score`. The scores are written to
    `OUT.scores.jsonl`, which `scores` can read for other rules and budgets."""
    scores: Annotated[str | None, OPERATIONAL] = None
    """Scores that `mclabel score` has written for this pool, a file or a run, in place of `prm`."""
    uniform_share: float = Field(0.15, ge=0, le=1)
    """Share of the budget that is drawn uniformly at random, at least one solution unless it is 0,
    so that means over the pool can be estimated without bias. rule=uniform draws all."""
    per_problem: int | None = Field(None, ge=1, le=MAX_COUNT)
    """Maximum number of solutions that the rule chooses of one problem. Problems take turns in any
    case; null sets no further limit."""
    aggregation: Aggregation = "min"
    """How the step scores of a solution become one, for rule=convincing: last, min, product, mean,
    max or log_odds."""
    seed: Seed = 0
    """Seed of the uniform draw and of ties."""
    exclude: list[str] = Field([], max_length=MAX_EXCLUDED)
    """Manifests of earlier selections from this pool: what they chose, and what has the
    same text, is left out of it."""
    format: Annotated[str, OneOf(tuple(FORMATS))] = OWN_FORMAT
    """Format of the PRM: `mclabel`, `trl`, `math-shepherd`, `rlhflow`, `qwen` or `generative`."""
    device: Annotated[str, OPERATIONAL] = AUTO
    """PyTorch device that computes the scores, such as cpu or cuda; auto takes cuda if this machine
    has a GPU."""

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
