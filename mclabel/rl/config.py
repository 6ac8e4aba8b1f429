"""Configuration of reinforcement learning, and of the server of rewards."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mclabel.core.settings import MAX_CORES, OPERATIONAL, rule
from mclabel.data.readers.base import ChosenReader, ReaderSettings
from mclabel.engines.devices import AUTO
from mclabel.engines.settings import PolicySettings
from mclabel.labeling.config import arith_problems
from mclabel.rl.settings import RewardSettings
from mclabel.rl.training.settings import MeasureSettings, RLSettings


class RLConfig(RLSettings):
    """Training of a policy by reinforcement learning, with credit for every step."""

    out: Annotated[str, OPERATIONAL]
    """Output folder for checkpoints, log, measurements and model. The same folder resumes an
    interrupted run."""
    policy: PolicySettings = PolicySettings()
    """The policy that is trained, how it is sampled, and the engine that samples it."""
    problems: Annotated[ReaderSettings, ChosenReader()] = Field(default_factory=arith_problems)
    """Name of the reader of the problems to train on; by default it follows from `source`."""
    measured: Annotated[ReaderSettings | None, ChosenReader()] = None
    """Name of the reader of further problems, on which the policy is measured during training.
    `measured=null`, the default, measures nothing."""
    measuring: MeasureSettings = MeasureSettings()
    device: Annotated[str, OPERATIONAL] = AUTO
    """PyTorch device of the model in training, such as cpu or cuda. `auto` takes cuda if the
    machine has a GPU."""
    threads: Annotated[int, OPERATIONAL] = Field(2, ge=1, le=MAX_CORES)
    """Number of CPU threads of the training."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """PyTorch dtype of the weights in training."""
    bf16: bool = False
    """Whether to compute in mixed precision with bfloat16. The weights keep their `dtype`."""

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
