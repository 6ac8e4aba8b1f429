"""Configuration of the reward server."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mclabel.checkers.base import CheckerField, default_checker
from mclabel.core.settings import (
    Chosen,
    rule,
)
from mclabel.core.stats.values import TruncatedPolicy
from mclabel.data.steps import StepSplitter
from mclabel.prm.scoring.aggregate import Aggregation
from mclabel.prm.scoring.scorer import ScorerSettings
from mclabel.rl.credit_methods import OutcomeCredit
from mclabel.rl.credits import CreditSettings

CreditField = Annotated[CreditSettings, Chosen("credits", default="outcome")]
"""Type of a configuration field that selects a method to compute the advantages of steps."""


class RewardSettings(ScorerSettings):
    """Settings of the rewards of completions."""

    prm: str | None = None  # type: ignore[assignment]  # optional here, unlike in ScorerSettings
    """PRM that scores steps: a folder or, for formats other than `mclabel`, a Hugging Face name.
    null scores no steps."""
    check: bool = True
    """True if the reward is the grade of the answer; false if it is the aggregated PRM score."""
    checker: CheckerField = Field(default_factory=default_checker)
    """Checker that grades completions against the gold answer."""
    split: StepSplitter = StepSplitter()
    """Rules that split completions into steps."""
    aggregate: Aggregation = "min"
    """Aggregation of step scores to a reward if `check` is false: `last`, `min`, `product`, `mean`
    or `max`."""
    truncated: TruncatedPolicy = "wrong"
    """Treatment of a truncated completion: `wrong` gives it the reward 0, `exclude` leaves it out.
    """
    credit: CreditField = Field(default_factory=OutcomeCredit.Settings)
    """Credit: the method that computes the advantage of each step."""
    around: tuple[str, str] = ("", "")
    """Texts of the chat template before and after the problem in prompts of POST /get_reward."""

    @rule
    def _check_reward_source(self) -> str | None:
        if self.prm is None and not self.check:
            return (
                "check=false: leaves no source of rewards, because prm is null. Set prm to the "
                "folder of a PRM, or set check=true"
            )
        return None

    @rule
    def _check_reward_range(self) -> str | None:
        if self.aggregate == "log_odds":
            return (
                "aggregate='log_odds': gives rewards outside [0, 1], which are not allowed. Set "
                "aggregate=product, which ranks completions similarly"
            )
        return None

    @rule
    def _check_split_needs_no_tokens(self) -> str | None:
        if self.split.min_tokens != 1:
            return (
                f"split.min_tokens={self.split.min_tokens}: counts tokens of the policy, but the "
                "server receives texts without tokens. Remove split.min_tokens"
            )
        return None


class ServeRewardsConfig(RewardSettings):
    """Configuration of `mclabel serve-rewards`, a server of rewards and step credits."""
