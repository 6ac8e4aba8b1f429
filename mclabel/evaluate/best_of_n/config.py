"""Configuration of evaluations."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mclabel.checkers.base import CheckerField, default_checker
from mclabel.core.settings import MAX_CORES, OPERATIONAL, RUNS_CODE, Seed, Settings, at_most, rule
from mclabel.data.readers.base import ChosenReader, ReaderSettings
from mclabel.data.steps import StepSplitter
from mclabel.engines.settings import PolicySettings
from mclabel.labeling.config import MAX_BLOCK, arith_problems
from mclabel.labeling.sampling import MAX_SAMPLES
from mclabel.prm.scoring.aggregate import Aggregation
from mclabel.prm.scoring.scorer import ScorerSettings
from mclabel.run.settings import RayConfig


class BestOfNConfig(Settings):
    """Best-of-N evaluation of PRMs, ORMs and likelihoods."""

    out: Annotated[str, OPERATIONAL]
    """Output folder for the sampled solutions, the metrics and the plot."""
    problems: Annotated[ReaderSettings, ChosenReader()] = Field(default_factory=arith_problems)
    """Name of the reader of the evaluation problems; by default it follows from `source`."""
    exclude: list[str] = Field([])
    """Runs of `mclabel label` that the scorers were trained on. Problems with the same text are
    left out of the evaluation."""
    split: StepSplitter = StepSplitter()
    """Where the steps of the sampled solutions end: as in the labels that the scorers were trained
    on."""
    policy: PolicySettings = PolicySettings()
    checker: CheckerField = Field(default_factory=default_checker)
    """Name of the checker, which grades the sampled solutions and decides which answers are
    equivalent. Its settings are the other keys of `checker`."""
    samples: Annotated[
        int, at_most(MAX_SAMPLES, "all of a problem's are held in memory together")
    ] = Field(16, ge=1)
    """Number of solutions sampled for each problem: the largest N of best-of-N."""
    run: str | None = None
    """Run of `mclabel label`, or `out` of an earlier best-of-N evaluation, whose solutions are
    used; null samples solutions from the policy."""
    group_by: list[str] = Field(["family", "level", "subject", "answer_type"])
    """Metadata fields of the problems by which results are also shown in groups. Fields that no
    problem has are ignored."""
    scorers: dict[str, str | ScorerSettings] = Field({})
    """PRMs and ORMs to compare, as NAME: FOLDER, or as NAME: {prm: FOLDER, format: qwen} with the
    keys of a scorer where its format is not `mclabel`. The name appears in the tables."""
    likelihood: dict[str, str] = Field({})
    """Language models whose likelihood of a solution is used as its score, as NAME: MODEL. The name
    appears in the tables."""
    references: list[str] = Field([])
    """Names among `scorers` and `likelihood` that serve only as references, such as a model that is
    stronger than the policy. Tables show their results separately, and headlines leave them out."""
    trust_remote_code: Annotated[list[str], RUNS_CODE] = Field([])
    """Names among `scorers` and `likelihood` whose own Python code may run. For security they must
    be passed on the command line; a file alone cannot set them."""
    aggregate: list[Aggregation] = Field(["last", "min", "product", "mean"], min_length=1)
    """Ways of combining the step scores of a PRM into one score of the solution; each is
    evaluated."""
    stop_when: float | None = Field(None, gt=0.5, lt=1)
    """Also measures stopping a problem's sampling early, by PRMs trained with target=beta: as soon
    as the leading solution's value is with this probability above that of any other answer. Choose
    it on other problems. null measures none."""
    threads: Annotated[int | None, OPERATIONAL] = Field(None, ge=1, le=MAX_CORES)
    """Number of CPU threads of the scorers; null takes one per core."""
    seed: Seed = 0
    """Random seed for the sampling, for breaking ties and for the bootstrap."""
    block_problems: Annotated[
        int, at_most(MAX_BLOCK, "a block is held in memory, and committed, as a whole")
    ] = Field(8, ge=1)
    """Number of problems in a block. A block is sampled and written as a unit."""
    ray: RayConfig = RayConfig()
    strict: Annotated[bool, OPERATIONAL] = False
    """Stop at the first row or problem that cannot be used. If false, it is left out and listed or
    counted."""

    @rule
    def _trust_is_given_by_name(self) -> str | None:
        for name, given in self.scorers.items():
            if isinstance(given, ScorerSettings) and given.trust_remote_code:
                return (
                    f"scorers.{name}.trust_remote_code: is given for all scorers in one place. "
                    f"Pass trust_remote_code=[{name}] instead"
                )
        return None

    def scorer(self, name: str) -> ScorerSettings:
        """The settings of one of `scorers`."""
        given = self.scorers[name]
        settings = ScorerSettings(prm=given) if isinstance(given, str) else given
        return settings.changed(trust_remote_code=name in self.trust_remote_code)
