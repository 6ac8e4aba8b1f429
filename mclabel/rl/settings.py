"""How steps are credited, and completions rewarded: settings of training and of the server."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mclabel.checkers.base import CheckerField, default_checker
from mclabel.data.steps import StepSplitter
from mclabel.prm.scoring.aggregate import Aggregation
from mclabel.prm.scoring.scorer import ScorerSettings
from mclabel.rl.credits.base import CreditSettings
from mclabel.rl.credits.outcome import OutcomeCredit
from mclabel.settings import Chosen, Settings, rule

CreditField = Annotated[CreditSettings, Chosen("credits", default="outcome")]
"""Type of a configuration field that chooses a credit."""


class CreditedSettings(Settings):
    """How credit is given to steps."""

    error_below: float = Field(0.5, gt=0, le=1)
    """Score of the PRM below which a step is taken to be wrong; the first such step is the first
    error, which `credit.kind=first_error` needs."""
    credit: CreditField = Field(default_factory=OutcomeCredit.Settings)
    """Name of the credit, which makes advantages of steps from outcomes and scores. Its settings
    are the other keys of `credit`."""


class RewardSettings(ScorerSettings, CreditedSettings):
    """How completions are rewarded."""

    prm: str | None = None  # type: ignore[assignment]  # a scorer of steps is not needed here
    """Folder of the PRM that scores steps; for a format other than `mclabel`, its folder or Hugging
    Face name. null scores no steps."""
    check: bool = True
    """Whether completions are graded by the gold answers that come with them. If true, every
    completion needs one, and the reward is 1 for a right answer and else 0. If false, the reward is
    made of the scores of the PRM."""
    checker: CheckerField = Field(default_factory=default_checker)
    """Name of the checker, which compares the answers of completions to the gold answer. Its
    settings are the other keys of `checker`."""
    split: StepSplitter = StepSplitter()
    """Where the steps of completions end."""
    aggregate: Aggregation = "min"
    """How the scores of a completion's steps make its reward where `check` is false. Not
    `log_odds`, which is no number in [0, 1]."""
    around: tuple[str, str] = ("", "")
    """Texts of the trainer's prompt before and after the problem, of its chat template for
    example: what is between the first place of the one and the last place of the other is the
    problem. For POST /get_reward, where a prompt comes as the policy reads it."""
    end_texts: tuple[str, ...] = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "</s>")
    """Texts of end tokens, which are removed from the end of a completion. For POST /get_reward,
    where they come with it."""

    @rule
    def _something_rewards(self) -> str | None:
        if self.prm is None and not self.check:
            return (
                "check=false: leaves nothing that rewards, as prm is null. Set prm to the folder "
                "of a PRM, or leave check out"
            )
        return None

    @rule
    def _a_reward_is_a_share(self) -> str | None:
        if self.aggregate == "log_odds":
            return (
                "aggregate='log_odds': is no number in [0, 1], as a reward must be. Set "
                "aggregate=product, which ranks much alike"
            )
        return None

    @rule
    def _steps_are_seen_in_texts(self) -> str | None:
        if self.split.min_tokens != 1:
            return (
                f"split.min_tokens={self.split.min_tokens}: counts tokens of a policy, and "
                "completions come as texts. Remove it"
            )
        return None
