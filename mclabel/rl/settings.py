"""How steps are credited, and completions rewarded: settings of training and of the server."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mclabel.checkers.base import CheckerField, default_checker
from mclabel.core.settings import Chosen, Settings, rule
from mclabel.core.stats.values import TruncatedPolicy
from mclabel.data.steps import StepSplitter
from mclabel.prm.scoring.aggregate import Aggregation
from mclabel.prm.scoring.scorer import ScorerSettings
from mclabel.rl.credits.base import CreditSettings
from mclabel.rl.credits.outcome import OutcomeCredit

CreditField = Annotated[CreditSettings, Chosen("credits", default="outcome")]
"""Type of a configuration field that chooses a credit."""


class CreditedSettings(Settings):
    """How credit is given to steps."""

    error_below: float = Field(0.5, gt=0, le=1)
    """A step counts as wrong if its PRM score is below this; the first such step is the first
    error, which `credit.kind=first_error` needs."""
    truncated: TruncatedPolicy = "wrong"
    """Whether a solution that was cut at the token limit has the reward 0 (`wrong`), or is left out
    of rewards, baselines and the loss (`exclude`). One that could not be graded is always left
    out."""
    credit: CreditField = Field(default_factory=OutcomeCredit.Settings)
    """Name of the credit, which gives each step an advantage computed from outcomes and, depending
    on its kind, step scores, step values or first errors. Its settings are the other keys of
    `credit`."""


class RewardSettings(ScorerSettings, CreditedSettings):
    """How completions are rewarded."""

    prm: str | None = None  # type: ignore[assignment]  # a scorer of steps is not needed here
    """Folder of the PRM that scores steps; for a format other than `mclabel`, its folder or Hugging
    Face name. null scores no steps."""
    check: bool = True
    """Whether completions are graded against the gold answers sent with them: each then needs one,
    and the reward is 1 for a right answer and 0 otherwise. false computes the reward from the PRM's
    scores."""
    checker: CheckerField = Field(default_factory=default_checker)
    """Name of the checker, which compares the answers of completions to the gold answer. Its
    settings are the other keys of `checker`."""
    split: StepSplitter = StepSplitter()
    """Where the steps of completions end."""
    aggregate: Aggregation = "min"
    """How step scores are combined into the reward if `check` is false: `last`, `min`, `product`,
    `mean` or `max`. `log_odds` is refused, because rewards must lie in [0, 1]."""
    around: tuple[str, str] = ("", "")
    """Texts before and after the problem in the trainer's prompt, such as those of its chat
    template: the problem lies between the first occurrence of the first text and the last
    occurrence of the second. If both are empty, it is the whole prompt. Used by POST /get_reward,
    which receives prompts as the policy reads them."""
    end_texts: tuple[str, ...] = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "</s>")
    """Texts of end tokens, removed from the end of a completion. Used by POST /get_reward, whose
    completions include them."""

    @rule
    def _something_rewards(self) -> str | None:
        if self.prm is None and not self.check:
            return (
                "check=false: leaves no source of rewards, because prm is null. Set prm to the "
                "folder of a PRM, or leave check out"
            )
        return None

    @rule
    def _a_reward_is_a_share(self) -> str | None:
        if self.aggregate == "log_odds":
            return (
                "aggregate='log_odds': does not lie in [0, 1], as a reward must. Set "
                "aggregate=product, which ranks similarly"
            )
        return None

    @rule
    def _steps_are_seen_in_texts(self) -> str | None:
        if self.split.min_tokens != 1:
            return (
                f"split.min_tokens={self.split.min_tokens}: counts tokens of the policy, but the "
                "server receives texts. Remove it"
            )
        return None
