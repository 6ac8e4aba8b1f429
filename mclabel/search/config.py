"""Configurations of searches and of their server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from mclabel.core.settings import MAX_SECONDS, MAX_TOKENS, OPERATIONAL, Chosen, at_most, rule
from mclabel.data.readers.base import ChosenReader, ReaderSettings
from mclabel.engines.settings import PolicySettings
from mclabel.judge.job import RunsHere
from mclabel.labeling.config import MAX_BLOCK, SampledSettings, arith_problems
from mclabel.run.settings import BudgetConfig
from mclabel.search.base import MethodSettings
from mclabel.search.scorers import StepScorerSettings

STOPS: Mapping[str, tuple[str, ...]] = {"line": ("\n",), "blank_line": ("\n\n",)}
"""Texts with which a step ends, by the rule of splitting."""

Choice = Literal["best", "weighted_vote", "majority"]
"""Choice of the answer: that of the solution with the highest score, the one with the highest sum
of scores over its solutions, or the one with the most solutions."""


def _method() -> MethodSettings:
    from mclabel.search.levels import BeamSearch

    return BeamSearch.Settings()


class SteeredSettings(SampledSettings):
    """Settings of a search that do not depend on the method."""

    scorer: Annotated[StepScorerSettings, Chosen("scorers", default="prm")]
    """Scorer of prefixes; `exact` is the truth (arith and pyarith only)."""
    choose: Choice = "best"
    """Result: the solution with the highest score, or the best one of the answer that wins the
    vote."""
    tokens: int | None = Field(None, ge=1, le=MAX_TOKENS)
    """Maximum number of tokens sampled for a problem, including discarded ones."""

    @rule
    def _steps_end_where_they_are_seen_to(self) -> str | None:
        split = self.split
        if split.by not in STOPS:
            return (
                f"split.by={split.by!r}: the end of such a step is known only once the next one "
                "has begun, but a search stops at the end of each step. Set split.by=line or "
                "blank_line"
            )
        if split.region != "all" or split.max_steps is not None:
            key = "region" if split.region != "all" else "max_steps"
            return (
                f"split.{key}: applies to whole solutions only, but a search splits unfinished "
                "ones. Remove it"
            )
        return None


class PolicySteeredSettings(SteeredSettings):
    """Settings of a search with its policy."""

    policy: PolicySettings = PolicySettings()
    """Policy that writes the solutions."""

    @rule
    def _one_solution_fits(self) -> str | None:
        if self.tokens is not None and self.tokens < self.policy.max_tokens:
            return (
                f"tokens={self.tokens}: is less than policy.max_tokens={self.policy.max_tokens}, "
                "so that not even one solution is sure to fit. Raise tokens, or lower "
                "policy.max_tokens"
            )
        return None


class SearchSettings(SteeredSettings):
    """Settings of a search with its method."""

    search: Annotated[MethodSettings, Chosen("searches", default="beam")] = Field(
        default_factory=_method
    )
    """Search method, which decides which prefixes are continued."""


class PolicySearchSettings(SearchSettings, PolicySteeredSettings):
    """Settings of a search with its method and policy."""


class SharedSearchConfig(PolicySteeredSettings, RunsHere):
    """Base configuration of a search and of a comparison of searches."""

    out: Annotated[str, OPERATIONAL]
    """Output folder or object store URL. The same path resumes an interrupted run."""
    problems: Annotated[ReaderSettings, OPERATIONAL, ChosenReader()] = Field(
        default_factory=arith_problems
    )
    """Reader of the problems; by default it follows from `source`."""
    block_problems: Annotated[
        int,
        OPERATIONAL,
        at_most(MAX_BLOCK, "a block is held in memory, and committed, as a whole"),
    ] = Field(8, ge=1)
    """Problems in a block, the unit of work."""
    journal_s: Annotated[float, OPERATIONAL] = Field(60, gt=0, le=MAX_SECONDS)
    """Seconds between two writes of the journals: the most work that a killed engine loses."""
    strict: Annotated[bool, OPERATIONAL] = False
    """True to stop at the first unusable row or problem, instead of leaving it out."""


class SearchConfig(PolicySearchSettings, SharedSearchConfig):
    """A job that searches for solutions to problems, steered by a scorer of steps."""

    budget: Annotated[BudgetConfig, OPERATIONAL] = BudgetConfig()


class ServeSearchConfig(PolicySearchSettings):
    """A server that answers a problem with the solution that a search chooses.

    Keys that only `mclabel search` uses, such as `problems` and `out`, are ignored, so that the
    file of a search job also configures the server.
    """

    @model_validator(mode="before")
    @classmethod
    def _without_keys_of_a_job(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        job_keys = SearchConfig.model_fields.keys() - cls.model_fields.keys()
        return {key: value for key, value in content.items() if key not in job_keys}
