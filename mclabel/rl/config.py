"""Configuration of reinforcement learning and of the reward server."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mclabel.checkers.base import CheckerField, default_checker
from mclabel.core.settings import (
    MAX_AMOUNT,
    MAX_CORES,
    MAX_COUNT,
    MAX_TOKENS,
    OPERATIONAL,
    Chosen,
    Settings,
    at_most,
    rule,
)
from mclabel.core.stats.values import TruncatedPolicy
from mclabel.data.readers.base import ChosenReader, ReaderSettings
from mclabel.data.steps import StepSplitter
from mclabel.engines.devices import AUTO
from mclabel.engines.settings import PolicySettings
from mclabel.labeling.config import SampledSettings, arith_problems
from mclabel.labeling.estimators.base import EstimatorSettings
from mclabel.prm.scoring.aggregate import Aggregation
from mclabel.prm.scoring.scorer import ScorerSettings
from mclabel.prm.training.settings import ReportTo
from mclabel.rl.credit_methods import OutcomeCredit
from mclabel.rl.credits import CreditSettings

CreditField = Annotated[CreditSettings, Chosen("credits", default="outcome")]
"""Type of a configuration field that selects a credit."""


class CreditedSettings(Settings):
    """Settings that determine the rewards of solutions and the credit of steps."""

    truncated: TruncatedPolicy = "wrong"
    """Treatment of a truncated solution: `wrong` gives it the reward 0, `exclude` leaves it out."""
    credit: CreditField = Field(default_factory=OutcomeCredit.Settings)
    """Credit: the method that computes the advantage of each step."""


class RewardSettings(ScorerSettings, CreditedSettings):
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
    around: tuple[str, str] = ("", "")
    """Texts of the chat template before and after the problem in prompts of POST /get_reward."""

    @rule
    def _something_rewards(self) -> str | None:
        if self.prm is None and not self.check:
            return (
                "check=false: leaves no source of rewards, because prm is null. Set prm to the "
                "folder of a PRM, or set check=true"
            )
        return None

    @rule
    def _a_reward_is_a_share(self) -> str | None:
        if self.aggregate == "log_odds":
            return (
                "aggregate='log_odds': gives rewards outside [0, 1], which are not allowed. Set "
                "aggregate=product, which ranks completions similarly"
            )
        return None

    @rule
    def _steps_are_seen_in_texts(self) -> str | None:
        if self.split.min_tokens != 1:
            return (
                f"split.min_tokens={self.split.min_tokens}: counts tokens of the policy, but the "
                "server receives texts without tokens. Remove split.min_tokens"
            )
        return None


MAX_GROUP = 1024
"""Maximum number of solutions in a group. All solutions of a group are held in memory."""


def _default_estimator() -> EstimatorSettings:
    from mclabel.labeling.estimators.fixed import FixedEstimator

    return FixedEstimator.Settings(rollouts=4)


class RLSettings(SampledSettings, CreditedSettings):
    """Settings of reinforcement learning: the credit, the size of steps, and the optimizer."""

    estimator: Annotated[EstimatorSettings, Chosen("estimators", default="fixed")] = Field(
        default_factory=_default_estimator
    )
    """Estimator of step values or first errors, for credits that need them. `estimator=outcome`
    samples no rollouts."""
    prm: str | None = None
    """Folder of a PRM, for credits that need step scores or first errors."""
    steps: int = Field(100, ge=1, le=MAX_TOKENS)
    """Number of optimizer steps."""
    problems_per_step: int = Field(32, ge=1, le=MAX_COUNT)
    """Number of problems per optimizer step."""
    group_size: Annotated[int, at_most(MAX_GROUP, "a group is held in memory")] = Field(8, ge=2)
    """Number of solutions per problem, which form a group."""
    learning_rate: float = Field(1e-4, gt=0, le=MAX_AMOUNT)
    """Learning rate of AdamW."""
    beta: float = Field(0.0, ge=0, le=MAX_AMOUNT)
    """Weight of the KL divergence from the initial policy in the loss."""
    micro_batch: Annotated[int, OPERATIONAL] = Field(32, ge=1, le=MAX_COUNT)
    """Number of solutions processed at once. It must divide `problems_per_step` times
    `group_size`."""
    save_steps: Annotated[int, OPERATIONAL] = Field(10, ge=1, le=MAX_TOKENS)
    """Optimizer steps between two checkpoints."""
    report_to: ReportTo = Field([])
    """Services that track losses and metrics. Each needs the Python package of its name."""

    @rule
    def _a_step_is_cut_evenly(self) -> str | None:
        solutions = self.problems_per_step * self.group_size
        if solutions % self.micro_batch:
            return (
                f"micro_batch={self.micro_batch}: must divide the {solutions:,} solutions of a "
                f"step (problems_per_step={self.problems_per_step} x "
                f"group_size={self.group_size}). Change one of them"
            )
        return None

    @rule
    def _scores_come_from_a_prm(self) -> str | None:
        if "scores" in self.credit.component.needs and self.prm is None:
            return (
                f"credit.kind={self.credit.kind}: needs the step scores of a PRM. Set prm=FOLDER, "
                "the output of `mclabel train`"
            )
        return None


class MeasureSettings(Settings):
    """Settings of the measurements of the policy on held-out problems."""

    samples: Annotated[int, at_most(MAX_GROUP, "a problem's are held in memory")] = Field(4, ge=1)
    """Number of solutions sampled for each problem of `measured`."""
    every: int = Field(20, ge=1, le=MAX_TOKENS)
    """Optimizer steps between two measurements."""


class RLConfig(RLSettings):
    """Configuration of `mclabel rl`, which trains a policy with credit for every step."""

    out: Annotated[str, OPERATIONAL]
    """Output folder. The same folder resumes an interrupted run."""
    policy: PolicySettings = PolicySettings()
    """Settings of the trained policy: its model, its sampling, and the engine that samples it."""
    problems: Annotated[ReaderSettings, ChosenReader()] = Field(default_factory=arith_problems)
    """Reader of the problems. The default reader is chosen by `source`."""
    measured: Annotated[ReaderSettings | None, ChosenReader()] = None
    """Reader of held-out problems on which the policy is measured; `measured=null` (the default)
    measures nothing."""
    measuring: MeasureSettings = MeasureSettings()
    """Settings of the measurements."""
    device: Annotated[str, OPERATIONAL] = AUTO
    """PyTorch device of the trained model. `auto` takes cuda if the machine has a GPU."""
    threads: Annotated[int, OPERATIONAL] = Field(2, ge=1, le=MAX_CORES)
    """Number of CPU threads for training."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """PyTorch dtype of the trained weights."""
    bf16: bool = False
    """True to compute in bfloat16 mixed precision."""

    @rule
    def _solutions_of_a_group_differ(self) -> str | None:
        if self.policy.temperature == 0:
            return (
                "policy.temperature=0: all solutions of a group would be the same, so no solution "
                "could be better than another. Set policy.temperature above 0, such as 1"
            )
        return None

    @rule
    def _the_policy_itself_is_sampled(self) -> str | None:
        filters = {"top_p": (self.policy.top_p, 1), "top_k": (self.policy.top_k, 0)}
        for name, (given, off) in filters.items():
            if given != off:
                return (
                    f"policy.{name}={given}: samples from a part of the policy's distribution, but "
                    "the loss assumes samples from the full distribution, so its gradient would be "
                    f"biased. Set policy.{name}={off}"
                )
        return None


class ServeRewardsConfig(RewardSettings):
    """Configuration of `mclabel serve-rewards`, a server of rewards and step credits."""
