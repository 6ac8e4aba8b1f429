"""Configuration of reinforcement learning, and of the server of rewards, with their settings."""

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
"""Type of a configuration field that chooses a credit."""


class CreditedSettings(Settings):
    """Settings of the credit that steps are given."""

    truncated: TruncatedPolicy = "wrong"
    """Effect of a truncated solution: `wrong` gives it the reward 0, `exclude` leaves it out."""
    credit: CreditField = Field(default_factory=OutcomeCredit.Settings)
    """Credit, which gives each step an advantage."""


class RewardSettings(ScorerSettings, CreditedSettings):
    """Settings of the rewards of completions."""

    prm: str | None = None  # type: ignore[assignment]  # a scorer of steps is not needed here
    """PRM that scores steps: a folder or, for other formats, a Hugging Face name."""
    check: bool = True
    """True if the reward is the grade of the answer, instead of the PRM's scores."""
    checker: CheckerField = Field(default_factory=default_checker)
    """Checker, which grades completions against the gold answer."""
    split: StepSplitter = StepSplitter()
    """Place where the steps of completions end."""
    aggregate: Aggregation = "min"
    """Aggregation of step scores if `check` is false: `last`, `min`, `product`, `mean` or `max`."""
    around: tuple[str, str] = ("", "")
    """Texts of a chat template around the problem in prompts of POST /get_reward."""

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


MAX_GROUP = 1024
"""Maximum number of solutions in a group, all of which are held in memory."""


def _few_rollouts() -> EstimatorSettings:
    from mclabel.labeling.estimators.fixed import FixedEstimator

    return FixedEstimator.Settings(rollouts=4)


class RLSettings(SampledSettings, CreditedSettings):
    """Settings of the training of a policy by reinforcement learning."""

    estimator: Annotated[EstimatorSettings, Chosen("estimators", default="fixed")] = Field(
        default_factory=_few_rollouts
    )
    """Estimator for credits that need step values or first errors. `outcome` samples no
    rollouts."""
    prm: str | None = None
    """Folder of a PRM, for credits that need scores or first errors."""
    steps: int = Field(100, ge=1, le=MAX_TOKENS)
    """Number of optimizer steps."""
    problems_per_step: int = Field(32, ge=1, le=MAX_COUNT)
    """Problems per optimizer step."""
    group_size: Annotated[int, at_most(MAX_GROUP, "a group is held in memory")] = Field(8, ge=2)
    """Solutions in a group, sampled for one problem."""
    learning_rate: float = Field(1e-4, gt=0, le=MAX_AMOUNT)
    """Learning rate of AdamW."""
    beta: float = Field(0.0, ge=0, le=MAX_AMOUNT)
    """Weight of the KL divergence from the initial policy in the loss."""
    micro_batch: Annotated[int, OPERATIONAL] = Field(32, ge=1, le=MAX_COUNT)
    """Solutions processed at once. Must divide `problems_per_step` times `group_size`."""
    save_steps: Annotated[int, OPERATIONAL] = Field(10, ge=1, le=MAX_TOKENS)
    """Optimizer steps between two checkpoints."""
    report_to: ReportTo = Field([])
    """Trackers of losses and metrics, which need their own packages."""

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
    """Settings of the measurement of the policy on problems that it is not trained on."""

    samples: Annotated[int, at_most(MAX_GROUP, "a problem's are held in memory")] = Field(4, ge=1)
    """Solutions sampled for each problem of `measured`."""
    every: int = Field(20, ge=1, le=MAX_TOKENS)
    """Optimizer steps between two measurements."""


class RLConfig(RLSettings):
    """Training of a policy by reinforcement learning, with credit for every step."""

    out: Annotated[str, OPERATIONAL]
    """Output folder. The same folder resumes an interrupted run."""
    policy: PolicySettings = PolicySettings()
    """The policy that is trained, how it is sampled, and the engine that samples it."""
    problems: Annotated[ReaderSettings, ChosenReader()] = Field(default_factory=arith_problems)
    """Reader of the problems; by default it follows from `source`."""
    measured: Annotated[ReaderSettings | None, ChosenReader()] = None
    """Reader of problems on which the policy is measured; `measured=null` (the default) measures
    nothing."""
    measuring: MeasureSettings = MeasureSettings()
    device: Annotated[str, OPERATIONAL] = AUTO
    """PyTorch device of the trained model. `auto` takes cuda if the machine has a GPU."""
    threads: Annotated[int, OPERATIONAL] = Field(2, ge=1, le=MAX_CORES)
    """Number of CPU threads of the training."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """PyTorch dtype of the weights in training."""
    bf16: bool = False
    """Compute in bfloat16 mixed precision."""

    @rule
    def _solutions_of_a_group_differ(self) -> str | None:
        if self.policy.temperature == 0:
            return (
                "policy.temperature=0: all solutions of a group would be the same, so that none is "
                "better than another. Set it above 0, such as 1"
            )
        return None

    @rule
    def _the_policy_itself_is_sampled(self) -> str | None:
        filters = {"top_p": (self.policy.top_p, 1), "top_k": (self.policy.top_k, 0)}
        for name, (given, off) in filters.items():
            if given != off:
                return (
                    f"policy.{name}={given}: samples from a part of the policy's distribution, but "
                    "the loss assumes tokens of the policy itself, so its gradient would be "
                    f"biased. Set policy.{name}={off}"
                )
        return None


class ServeRewardsConfig(RewardSettings):
    """A server of rewards and step credits for trainers."""
