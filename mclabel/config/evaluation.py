"""Configuration of evaluations."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mclabel.checkers.base import CheckerField, default_checker
from mclabel.config.label import MAX_BLOCK, RayConfig, arith_problems
from mclabel.data.readers.base import ChosenReader, ReaderSettings
from mclabel.engines.settings import PolicySettings
from mclabel.labeling.sampling import MAX_SAMPLES
from mclabel.prm.scoring.aggregate import Aggregation
from mclabel.settings import OPERATIONAL, RUNS_CODE, Settings, at_most


class BestOfNConfig(Settings):
    """Best-of-N evaluation of PRMs, ORMs and likelihoods."""

    out: Annotated[str, OPERATIONAL]
    """Folder for the samples, the figures and the plot."""
    problems: Annotated[ReaderSettings, ChosenReader()] = Field(default_factory=arith_problems)
    """The problems whose answers are chosen."""
    exclude: list[str] = Field([])
    """Runs of `mclabel label` that the scorers were trained on: problems with the same text are
    left out."""
    policy: PolicySettings = PolicySettings()
    checker: CheckerField = Field(default_factory=default_checker)
    """The checker that grades the samples and decides which answers mean the same; see `mclabel
    label`."""
    samples: Annotated[
        int, at_most(MAX_SAMPLES, "all of a problem's are held in memory together")
    ] = Field(16, ge=1)
    """Number of solutions of each problem, which is the largest N."""
    run: str | None = None
    """A run of `mclabel label`, or the `out` of an earlier best-of-N, whose solutions are used
    instead of sampling any."""
    group_by: list[str] = Field(["family", "level", "subject", "answer_type"])
    """Metadata fields by which results are also shown in groups, where problems have them."""
    scorers: dict[str, str] = Field({})
    """Folders of PRMs and ORMs, each under a name for the table."""
    likelihood: dict[str, str] = Field({})
    """Language models whose likelihood of a solution is its score, each under a name for the
    table."""
    references: list[str] = Field([])
    """Those of the names that nobody has in use, such as a stronger model than the policy: what
    they reach stands apart in tables, and no headline is about it."""
    trust_remote_code: Annotated[list[str], RUNS_CODE] = Field([])
    """Names of scorers and of language models whose own Python code may be run. A file alone must
    not say so."""
    aggregate: list[Aggregation] = Field(["last", "min", "product", "mean"], min_length=1)
    """How the step scores of a PRM become one score."""
    threads: Annotated[int | None, OPERATIONAL] = Field(None, ge=1)
    """CPU threads of the scorers. By default there is one for each core."""
    seed: int = Field(0, ge=0)
    """Seed of the sampling, of the order among ties, and of the bootstrap."""
    block_problems: Annotated[
        int, at_most(MAX_BLOCK, "a block is held in memory, and committed, as a whole")
    ] = Field(8, ge=1)
    """Number of problems that are sampled and committed together."""
    ray: RayConfig = RayConfig()
