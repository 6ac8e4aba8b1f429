"""Configuration of training jobs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mclabel.config.base import OPERATIONAL, Config
from mclabel.config.label import RayConfig


class TrainConfig(Config):
    """Training of a PRM or an ORM on labels."""

    out: Annotated[str, OPERATIONAL]
    """Folder for checkpoints, log and model."""
    labels: Annotated[list[str], OPERATIONAL] = Field(min_length=1)
    """Runs of `mclabel label`; a training run is known by their content."""
    base: str
    """Causal language model to start from: folder, Hugging Face name, arith:base, arith:policy."""
    revision: str | None = None
    """Commit or tag of a Hugging Face model."""
    trust_remote_code: bool = False
    """Run Python code that comes with the base."""
    head: Literal["token", "likelihood"] = "token"
    """`token`: token classification, the standard. `likelihood`: uses what the base says of each
    step's tokens, too; better where the base is small."""
    extra_layers: int = Field(0, ge=0)
    """Of head=token with backbone_lr=0: layers on top of the base's that see what it expected of
    each token, and are trained at `head_lr`. Steps are scored at their last tokens. Any server
    loads the result."""
    teacher: str | None = None
    """Of head=token: a trained scorer with head=likelihood, on the same base. What it says of each
    step is learned in place of labels, and what it expected of each token; solutions without labels
    serve as well."""
    states: bool | None = None
    """Of head=likelihood: whether it sees hidden states beside likelihoods. By default where the
    base is trained; a frozen base's states cost accuracy until labels are many."""
    target: Literal[
        "hard",
        "soft",
        "posterior",
        "advantage",
        "progress",
        "neutral",
        "outcome",
        "outcome_steps",
    ] = "hard"
    """`hard`: the policy still recovers. `soft`: the value. `posterior`: chance of no error so far.
    `advantage`: what the step adds. `progress`: it keeps 0.8 of the value. `neutral`: three classes
    (head=token). `outcome`, `outcome_steps`: an ORM, labelled at the last step or at every one."""
    loss: Literal["cross_entropy", "mse"] = "cross_entropy"
    weights: Literal["equal", "rollouts", "interval"] = "equal"
    """Of steps: by their number of rollouts, or by how narrow the interval of their value is."""
    to_first_error: bool = False
    """Steps after the first wrong one teach nothing."""
    balance: bool = False
    """Sound and wrong steps count the same in all."""
    pair_weight: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Of a loss over pairs of a right and a wrong solution of one problem, beside that of steps."""
    step_token: str | None = None
    """Of head=token: follows every step. By default the one that the tokenizer reserves."""
    add_step_token: bool = False
    """Add `step_token` to the vocabulary if it is not in it."""
    template: str | None = None
    """Prompt with {problem} in it; by default the base's chat template."""
    system: str | None = None
    """System message of the chat."""
    max_tokens: int | None = Field(None, ge=1)
    """Of prompt and solution; by default what the base allows."""
    too_long: Literal["drop", "cut"] = "drop"
    """What becomes of longer ones: left out, or cut after the last step that fits."""
    limit: int | None = Field(None, ge=1)
    """Solutions to train on, by default all."""
    evaluation: Annotated[list[str], OPERATIONAL] = Field([])
    """Evaluation sets, runs of `mclabel` or files with a `problem`: what reads the same is not
    trained on."""
    validation: float = Field(0.1, ge=0, lt=1, allow_inf_nan=False)
    """Share of problems kept for validation."""
    epochs: float = Field(3.0, gt=0, allow_inf_nan=False)
    max_steps: int | None = Field(None, ge=1)
    """Optimizer steps, in place of epochs."""
    batch_size: int = Field(16, ge=1)
    """Solutions an optimizer step, over all workers."""
    micro_tokens: Annotated[int, OPERATIONAL] = Field(8192, ge=1)
    """Tokens of a worker, padding included, that are in memory at a time: gradients are added up.
    One solution at least, with `pair_weight` all of a problem's in the batch."""
    gradient_checkpointing: Annotated[bool, OPERATIONAL] = False
    """Keep a layer's inputs alone, and compute the rest again for its gradients."""
    backbone_lr: float = Field(1e-5, ge=0, allow_inf_nan=False)
    """Learning rate of the base's own weights; 0 freezes them."""
    head_lr: float = Field(1e-3, gt=0, allow_inf_nan=False)
    weight_decay: float = Field(0.0, ge=0, allow_inf_nan=False)
    warmup: float = Field(0.05, ge=0, lt=1, allow_inf_nan=False)
    """Share of the steps over which the rates rise."""
    lora_rank: int | None = Field(None, ge=1)
    """Train adapters of this rank in place of the base's own weights, at `backbone_lr`."""
    lora_alpha: int = Field(32, gt=0)
    eval_steps: Annotated[int | None, OPERATIONAL] = Field(None, ge=1)
    """Optimizer steps between two validations; by default one after every epoch."""
    patience: int | None = Field(None, ge=1)
    """Validations without a lower loss after which training stops; the best weights are kept."""
    seed: int = Field(0, ge=0)
    save_steps: Annotated[int, OPERATIONAL] = Field(200, ge=1)
    """Optimizer steps between two checkpoints."""
    report_to: Annotated[list[Literal["tensorboard", "wandb"]], OPERATIONAL] = Field([])
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the base's weights."""
    bf16: bool = False
    """Compute in bfloat16 on weights kept in float32."""
    device: Annotated[str, OPERATIONAL] = "cpu"
    threads: Annotated[int, OPERATIONAL] = Field(1, ge=1)
    """Of torch on a CPU. More than one are fast only where nothing else runs."""
    workers: Annotated[int, OPERATIONAL] = Field(1, ge=1)
    """More than one are run by Ray Train, and share every batch."""
    shard: Annotated[bool, OPERATIONAL] = False
    """Split weights, gradients and the optimizer's state over the workers (FSDP), for a body that
    is too large to be trained on one device."""
    ray: Annotated[RayConfig, OPERATIONAL] = RayConfig()
    """Of more than one worker; `num_cpus` and `num_gpus` are each worker's."""
