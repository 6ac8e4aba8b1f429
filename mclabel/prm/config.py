"""Configuration of training jobs, which combines settings of model, data and trainer."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mclabel.core.settings import MAX_CORES, MAX_COUNT, OPERATIONAL, rule
from mclabel.engines.devices import AUTO
from mclabel.prm.examples.build import ExampleSettings
from mclabel.prm.examples.encode import TextSettings
from mclabel.prm.examples.targets import find_target
from mclabel.prm.model.settings import HEADS, ModelSettings
from mclabel.prm.training.settings import TrainerSettings
from mclabel.run.settings import RayConfig


class TrainConfig(TrainerSettings, TextSettings, ExampleSettings, ModelSettings):
    """Configuration of `mclabel train`, which trains a PRM or an ORM on labels.

    The keys of the model, the data and the trainer have no prefix, as in `target=soft`.
    """

    out: Annotated[str, OPERATIONAL]
    """Output folder. The same folder resumes an interrupted run."""
    labels: Annotated[list[str], OPERATIONAL] = Field(min_length=1)
    """Output folders of `mclabel label` to train on. They must hold different solutions."""
    device: Annotated[str, OPERATIONAL] = AUTO
    """PyTorch device of each worker. `auto` takes cuda if the machine that runs the command has a
    GPU."""
    threads: Annotated[int, OPERATIONAL] = Field(1, ge=1, le=MAX_CORES)
    """CPU threads of each worker."""
    workers: Annotated[int, OPERATIONAL] = Field(1, ge=1, le=MAX_COUNT)
    """Number of workers; more than one uses Ray Train."""
    shard: Annotated[bool, OPERATIONAL] = False
    """Shard weights, gradients and optimizer state over the workers (FSDP)."""
    ray: Annotated[RayConfig, OPERATIONAL] = RayConfig()
    """Ray cluster that runs the workers if there is more than one. `num_cpus` and `num_gpus` are
    reserved for each worker.
    """

    @rule
    def _check_classes_fit_head(self) -> str | None:
        if find_target(self.target).has_neutral and not HEADS[self.head].is_token_classifier:
            return (
                f"head={self.head}: target={self.target} has three classes, which only head=token "
                "can learn. Set head=token, or choose another target"
            )
        return None

    @rule
    def _check_classes_fit_loss(self) -> str | None:
        if find_target(self.target).has_neutral and self.loss != "cross_entropy":
            return (
                f"loss={self.loss}: target={self.target} has three classes, which only "
                "loss=cross_entropy can learn. Set loss=cross_entropy, or choose another target"
            )
        return None

    @rule
    def _check_step_token_needs_token_classifier(self) -> str | None:
        if self.step_token is not None and not HEADS[self.head].is_token_classifier:
            return (
                f"step_token={self.step_token!r}: head={self.head} scores each step at its last "
                "token and uses no step token. Remove step_token"
            )
        return None

    @rule
    def _check_adapters_need_training(self) -> str | None:
        if self.lora_rank is not None and self.backbone_lr == 0:
            return (
                f"lora_rank={self.lora_rank}: adapters are trained at the rate backbone_lr, which "
                "must be above 0 but is 0. Raise backbone_lr, or remove lora_rank"
            )
        return None

    @rule
    def _check_patience_needs_validation(self) -> str | None:
        if self.patience is not None and not self.validation:
            return (
                f"patience={self.patience}: early stopping needs validation problems, but "
                "validation=0. Set validation above 0, such as 0.1, or remove patience"
            )
        return None

    @rule
    def _check_shard_needs_workers_and_trained_base(self) -> str | None:
        if self.shard and (self.workers == 1 or self.backbone_lr == 0):
            return (
                "shard=true: shards a trained base over several workers, but "
                f"workers={self.workers} and backbone_lr={self.backbone_lr}. Set workers to 2 or "
                "more and backbone_lr above 0, or remove shard"
            )
        return None

    @rule
    def _check_workers_divide_batch(self) -> str | None:
        if self.batch_size % self.workers:
            return (
                f"batch_size={self.batch_size}: must be a multiple of workers={self.workers}. "
                "Change one of them"
            )
        return None
