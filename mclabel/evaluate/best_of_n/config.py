"""Configuration of `mclabel eval best-of-n`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mclabel.checkers.base import CheckerField, default_checker
from mclabel.core.settings import MAX_CORES, OPERATIONAL, RUNS_CODE, Seed, Settings, at_most, rule
from mclabel.data.readers.base import ChosenReader, ReaderSettings
from mclabel.data.steps import StepSplitter
from mclabel.engines.settings import PolicySettings
from mclabel.labeling.config import MAX_BLOCK, make_arith_reader_settings
from mclabel.labeling.sampling import MAX_SAMPLES
from mclabel.prm.scoring.aggregate import Aggregation
from mclabel.prm.scoring.scorer import ScorerSettings
from mclabel.run.settings import RayConfig


class BestOfNConfig(Settings):
    """Configuration of an evaluation of how well PRMs, ORMs and likelihoods choose one of N
    samples.
    """

    out: Annotated[str, OPERATIONAL]
    """Output folder."""
    problems: Annotated[ReaderSettings, ChosenReader()] = Field(
        default_factory=make_arith_reader_settings
    )
    """Reader of the problems. The default reader is chosen by `source`."""
    exclude: list[str] = Field([])
    """Runs of `mclabel label` on which the scorers were trained. Their problems are left out."""
    split: StepSplitter = StepSplitter()
    """Splitting of the sampled solutions into steps. It should be the same as in the labels on
    which the scorers were trained.
    """
    policy: PolicySettings = PolicySettings()
    checker: CheckerField = Field(default_factory=default_checker)
    """Checker that grades completions against the gold answer."""
    samples: Annotated[
        int, at_most(MAX_SAMPLES, "all of a problem's are held in memory together")
    ] = Field(16, ge=1)
    """Number of solutions per problem, which is the largest N."""
    run: str | None = None
    """Run of `mclabel label`, or `out` of an earlier best-of-N evaluation, whose solutions are used
    instead of new samples; null samples solutions."""
    scorers: dict[str, str | ScorerSettings] = Field({})
    """PRMs and ORMs to compare, as NAME: FOLDER, or NAME: {prm: FOLDER, format: qwen}."""
    likelihood: dict[str, str] = Field({})
    """Language models whose likelihood is the score, as NAME: MODEL."""
    references: list[str] = Field([])
    """Names among `scorers` and `likelihood` whose results are shown separately, because they serve
    only for comparison, such as a stronger model."""
    trust_remote_code: Annotated[list[str], RUNS_CODE] = Field([])
    """Names among `scorers` and `likelihood` whose own Python code may run (command line only)."""
    aggregate: list[Aggregation] = Field(["last", "min", "product", "mean"], min_length=1)
    """Aggregations of a PRM's step scores; each is evaluated."""
    threads: Annotated[int | None, OPERATIONAL] = Field(None, ge=1, le=MAX_CORES)
    """Number of CPU threads of the scorers; null means one per core."""
    seed: Seed = 0
    """Random seed."""
    block_problems: Annotated[
        int, at_most(MAX_BLOCK, "a block is held in memory, and committed, as a whole")
    ] = Field(8, ge=1)
    """Number of problems per block. A block is the unit of work that one engine leases and commits.
    """
    ray: RayConfig = RayConfig()
    strict: Annotated[bool, OPERATIONAL] = False
    """Stop at the first unusable row or problem instead of skipping it."""

    @rule
    def _check_trust_is_given_once(self) -> str | None:
        for name, given in self.scorers.items():
            if isinstance(given, ScorerSettings) and given.trust_remote_code:
                return (
                    f"scorers.{name}.trust_remote_code: is given for all scorers in one place. "
                    f"Pass trust_remote_code=[{name}] instead"
                )
        return None

    def scorer(self, name: str) -> ScorerSettings:
        """Return the settings of one of `scorers`."""
        given = self.scorers[name]
        settings = ScorerSettings(prm=given) if isinstance(given, str) else given
        return settings.with_changes(trust_remote_code=name in self.trust_remote_code)
