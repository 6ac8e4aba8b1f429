"""How a policy is trained by reinforcement."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mclabel.core.settings import (
    MAX_AMOUNT,
    MAX_COUNT,
    MAX_TOKENS,
    OPERATIONAL,
    Chosen,
    Settings,
    at_most,
    rule,
)
from mclabel.engines.settings import PolicySettings
from mclabel.labeling.estimators.base import EstimatorSettings
from mclabel.labeling.settings import SampledSettings
from mclabel.prm.training.settings import ReportTo
from mclabel.rl.settings import CreditedSettings

MAX_GROUP = 1024


def _few_rollouts() -> EstimatorSettings:
    from mclabel.labeling.estimators.fixed import FixedEstimator

    return FixedEstimator.Settings(rollouts=4)


class RLSettings(SampledSettings, CreditedSettings):
    """How a policy is trained by reinforcement."""

    estimator: Annotated[EstimatorSettings, Chosen("estimators", default="fixed")] = Field(
        default_factory=_few_rollouts
    )
    """Name of the estimator that samples rollouts from the current policy for credits that need
    step values, or first errors if `prm` is null. `outcome` samples none: values come from the
    group's solutions alone. Its settings are the other keys of `estimator`."""
    free_rollouts: bool = True
    """Whether the other solutions of a group count as rollouts from the prefixes that they share
    with a solution."""
    prover: PolicySettings | None = None
    """Another policy, under whose step values progress is measured, with its own engine, prompt and
    sampling: the keys of `policy`. It is not trained (arXiv 2410.08146). Required by credits of
    progress, such as prm_progress; null for all others."""
    prm: str | None = None
    """Folder of a PRM, for credits that need step scores or first errors. With any credit, the log
    then shows by how much its mean lowest score exceeds the share of right answers. null uses
    none."""
    steps: int = Field(100, ge=1, le=MAX_TOKENS)
    """Number of optimizer steps. Each samples new solutions with the weights that the step before
    it produced."""
    problems_per_step: int = Field(32, ge=1, le=MAX_COUNT)
    """Number of problems per optimizer step; a group of solutions is sampled for each."""
    group_size: Annotated[int, at_most(MAX_GROUP, "a group is held in memory")] = Field(8, ge=2)
    """Number of solutions sampled for each problem, which form a group and are compared with each
    other."""
    learning_rate: float = Field(1e-4, gt=0, le=MAX_AMOUNT)
    """Learning rate of AdamW, constant over the run."""
    max_grad_norm: float = Field(1.0, gt=0, le=MAX_AMOUNT)
    """Maximum norm of the gradients; larger gradients are scaled down to it."""
    beta: float = Field(0.0, ge=0, le=MAX_AMOUNT)
    """Weight in the loss of the KL divergence from the initial policy. Above 0, a copy of the
    initial policy is kept in memory; 0 leaves the divergence out."""
    micro_batch: Annotated[int, OPERATIONAL] = Field(32, ge=1, le=MAX_COUNT)
    """Number of solutions that are processed at once; gradients are accumulated over a step. Must
    divide `problems_per_step` times `group_size`."""
    save_steps: Annotated[int, OPERATIONAL] = Field(10, ge=1, le=MAX_TOKENS)
    """Number of optimizer steps between two checkpoints, and so the most that a killed run
    loses."""
    report_to: ReportTo = Field([])
    """Trackers to which losses and metrics are reported, besides the file `log.jsonl`: tensorboard,
    trackio, wandb or mlflow, each a package of its own; one name, a list, or none."""

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
    def _a_prover_is_asked(self) -> str | None:
        by_prover = self.credit.component.by_prover
        if by_prover and self.prover is None:
            return (
                f"credit.kind={self.credit.kind}: needs another policy, whose progress it rewards. "
                "Set prover.model, such as prover.model=arith:strong"
            )
        if self.prover is not None and not by_prover:
            return (
                f"prover: is not used by credit.kind={self.credit.kind}. Remove it, or choose a "
                "credit of progress, such as prm_progress"
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
    """How the policy is measured on problems that it is not trained on."""

    samples: Annotated[int, at_most(MAX_GROUP, "a problem's are held in memory")] = Field(4, ge=1)
    """Number of solutions sampled for each problem of `measured`."""
    every: int = Field(20, ge=1, le=MAX_TOKENS)
    """Number of optimizer steps between two measurements. The first and the last policy are always
    measured."""
