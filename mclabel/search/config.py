"""Configurations of search jobs and of the search server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from mclabel.core.settings import MAX_SECONDS, MAX_TOKENS, OPERATIONAL, Chosen, at_most, rule
from mclabel.data.readers.base import ChosenReader, ReaderSettings
from mclabel.engines.settings import PolicySettings
from mclabel.judge.job import RunsInProcess
from mclabel.labeling.config import MAX_BLOCK, SampledSettings, make_arith_reader_settings
from mclabel.run.settings import BudgetConfig
from mclabel.search.base import MethodSettings
from mclabel.search.scorers import StepScorerSettings

STOPS: Mapping[str, tuple[str, ...]] = {"line": ("\n",), "blank_line": ("\n\n",)}
"""Maps a value of the setting `split.by` to the texts that end a step."""

Choice = Literal["best", "weighted_vote", "majority"]
"""Rule that chooses the answer. `best` takes the answer of the solution with the highest score.
`weighted_vote` takes the answer whose solutions have the highest sum of scores. `majority` takes
the answer with the most solutions."""


def _make_default_method() -> MethodSettings:
    from mclabel.search.levels import BeamSearch

    return BeamSearch.Settings()


class SearchSettings(SampledSettings):
    """Settings of a search, including the method, but without the policy."""

    scorer: Annotated[StepScorerSettings, Chosen("scorers", default="prm")]
    """Scorer of prefixes. `exact` gives the true correctness of steps (arith and pyarith only)."""
    choose: Choice = "best"
    """Rule that chooses the result. `best` takes the solution with the highest score. The two votes
    take the solution with the highest score among those with the winning answer."""
    tokens: int | None = Field(None, ge=1, le=MAX_TOKENS)
    """Maximum number of tokens sampled for a problem, including discarded tokens; null sets no
    limit."""
    search: Annotated[MethodSettings, Chosen("searches", default="beam")] = Field(
        default_factory=_make_default_method
    )
    """Search method, which decides which prefixes are continued."""

    @rule
    def _check_split_marks_step_ends(self) -> str | None:
        split = self.split
        if split.by not in STOPS:
            return (
                f"split.by={split.by!r}: the end of such a step is known only once the next step "
                "has begun, but a search stops at the end of each step. Set split.by=line or "
                "split.by=blank_line"
            )
        if split.region != "all" or split.max_steps is not None:
            key = "region" if split.region != "all" else "max_steps"
            return (
                f"split.{key}: applies only to complete solutions, but a search splits unfinished "
                f"solutions. Remove split.{key}"
            )
        return None


class PolicySearchSettings(SearchSettings):
    """Settings of a search, including the method and the policy."""

    policy: PolicySettings = PolicySettings()
    """Policy that writes the solutions."""

    @rule
    def _check_one_solution_fits(self) -> str | None:
        if self.tokens is not None and self.tokens < self.policy.max_tokens:
            return (
                f"tokens={self.tokens}: is less than policy.max_tokens={self.policy.max_tokens}, "
                "so even a single solution may not fit. Raise tokens, or lower policy.max_tokens"
            )
        return None


class SearchConfig(PolicySearchSettings, RunsInProcess):
    """A job that searches for solutions to problems, steered by a scorer of steps."""

    out: Annotated[str, OPERATIONAL]
    """Output folder or object store URL. The same path resumes an interrupted run."""
    problems: Annotated[ReaderSettings, OPERATIONAL, ChosenReader()] = Field(
        default_factory=make_arith_reader_settings
    )
    """Reader of the problems. The default reader is chosen by `source`."""
    block_problems: Annotated[
        int,
        OPERATIONAL,
        at_most(MAX_BLOCK, "a block is held in memory and committed in one piece"),
    ] = Field(8, ge=1)
    """Number of problems per block. A block is the unit of work that one engine leases and commits.
    """
    journal_s: Annotated[float, OPERATIONAL] = Field(60, gt=0, le=MAX_SECONDS)
    """Seconds between two writes of a journal. A killed engine loses at most the work of this time.
    """
    strict: Annotated[bool, OPERATIONAL] = False
    """Stop at the first unusable row or problem instead of skipping it."""
    budget: Annotated[BudgetConfig, OPERATIONAL] = BudgetConfig()


class ServeSearchConfig(PolicySearchSettings):
    """A server that searches for a solution of each requested problem.

    Keys that only `mclabel search` uses, such as `problems` and `out`, are ignored. The file of a
    search job can therefore also configure the server.
    """

    @model_validator(mode="before")
    @classmethod
    def _drop_job_keys(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        job_keys = SearchConfig.model_fields.keys() - cls.model_fields.keys()
        return {key: value for key, value in content.items() if key not in job_keys}
