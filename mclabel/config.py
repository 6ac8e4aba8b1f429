"""Typed configuration of the jobs: YAML files and `key=value` overrides, checked as a whole.

A field is *semantic* if it changes what a label means (enters block ids; an output refuses
another value) or *operational* (engines, paths, sizes: free to change when a run is resumed).
Configuration stops at the edge: library functions take plain arguments.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import yaml
from pydantic import Field, ValidationError, model_validator

from mclabel.config_base import OPERATIONAL, SENSITIVE, Config
from mclabel.config_policy import PolicyConfig, SplitConfig
from mclabel.errors import ConfigError


class ProblemsConfig(Config):
    """Where problems come from."""

    source: str = "arith"
    """`arith` (generated), a .jsonl, .json, .parquet or .csv file, or `hf:NAME`."""
    split: str = "test"
    """Of arith (train, validation, test) or of a Hugging Face data set."""
    subset: str | None = None
    """Of a Hugging Face data set."""
    problem_column: str | None = None
    answer_column: str | None = None
    limit: int | None = Field(None, ge=1)
    """Number of problems; required for arith."""
    families: list[str] | None = None
    """Of arith; None takes those that its policy was trained on."""
    seed: int = Field(0, ge=0)
    """Of arith."""


class SolutionsConfig(Config):
    """Which solutions are labelled."""

    per_problem: int = Field(4, ge=1)
    """Sampled from the policy, unless `path` gives solutions."""
    balance: int | None = Field(None, ge=1)
    """Keep so many right and as many wrong solutions of each problem, fewer where one of the
    two runs short; a problem with none of one kind is dropped. None keeps all."""
    max_samples: int | None = Field(None, ge=1)
    """Of a problem, where `balance` is set: `per_problem` more are sampled until both kinds are
    there, or so many are. By default four times `per_problem`."""
    path: str | None = None
    """File of given solutions: problem_id (or problem), and solution (text) or steps (list)."""

    @model_validator(mode="after")
    def _check(self) -> SolutionsConfig:
        if self.balance is not None and self.path is not None:
            raise ValueError("balance needs sampled solutions, path gives them: set one of the two")
        if self.max_samples is not None and self.balance is None:
            raise ValueError("max_samples bounds what balance samples: set balance, too")
        if self.max_samples is not None and self.max_samples < self.per_problem:
            raise ValueError("max_samples must be at least per_problem")
        return self


class EstimatorConfig(Config):
    """What is rolled out, and when to stop."""

    kind: Literal[
        "fixed", "first_error", "bisect", "sequential", "posterior", "tree", "outcome"
    ] = "posterior"
    """`posterior` finds first errors for a small part of the tokens of the others; `fixed` gives
    every step an unbiased value from its own rollouts, with an exact interval. `outcome` rolls
    nothing out: only the last step is labelled, by the answer."""
    rollouts: int = Field(16, ge=1)
    """Of every prefix (fixed), of every one reached or probed (first_error, tree), or at most of
    one (the others)."""
    root_rollouts: int = Field(0, ge=0)
    """Of the bare problem (fixed)."""
    batch: int = Field(4, ge=1)
    """Rollouts of a prefix that are started together, where their number is not fixed."""
    threshold: float = Field(0.25, ge=0, lt=1, allow_inf_nan=False)
    """A step is wrong when its value is at most this times the bare problem's (sequential)."""
    width: float = Field(0.25, gt=0, le=1, allow_inf_nan=False)
    """Of an interval that is narrow enough (sequential)."""
    price: float = Field(3e-4, gt=0, allow_inf_nan=False)
    """Gain a token under which nothing is rolled out (posterior): lower is dearer and better."""
    every: int = Field(0, ge=0)
    """Rollouts of every prefix before the search begins (posterior): soft values of all steps."""
    tokens_per_solution: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Budget of rollouts that the price is led by as the run goes on (posterior)."""
    max_tokens: int | None = Field(None, ge=1)
    """Of a problem's rollouts (posterior)."""
    agreement: bool = True
    """Compare solutions' steps with each other (posterior)."""
    searches: int = Field(16, ge=0)
    """Of a problem; its wrong solutions are searched anyway (tree)."""
    pilot: int = Field(100, ge=1)
    """Solutions an engine labels before it first fits priors (posterior)."""
    priors: str | None = None
    """File of priors to begin with in place of a pilot, a run's priors/ID.json (posterior)."""
    truncated: Literal["wrong", "exclude"] = "wrong"
    """What a rollout cut by its length counts as. Excluding biases values up."""


class RayConfig(Config):
    """Where the engines run."""

    address: str = "local"
    """`local` starts Ray on this machine, `auto` or HOST:PORT joins a cluster, `none` runs in
    this process without Ray."""
    min_engines: int = Field(1, ge=1)
    """Engine actors that must be there before work begins. More are added as there is room, and
    work goes on if some are lost."""
    max_engines: int | None = Field(None, ge=1)
    """None is as many as the cluster has room for at any time. A number is asked for at once,
    so that a cluster that scales itself grows to it."""
    wait_s: float = Field(300, ge=0, allow_inf_nan=False)
    """Seconds that a cluster is given to find room for `min_engines`."""
    num_cpus: float | None = Field(None, ge=0)
    """Of an engine; None is what its policy needs."""
    num_gpus: float | None = Field(None, ge=0)
    """Of an engine; None is what its policy needs."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max_engines is not None and self.max_engines < self.min_engines:
            raise ValueError(
                f"ray.max_engines={self.max_engines}: must be >= ray.min_engines={self.min_engines}"
            )
        return self


class BudgetConfig(Config):
    """What a job may cost, and what things cost. Limits hold for all runs of a job together."""

    max_tokens: int | None = Field(None, ge=1)
    """Sampled tokens, about: what is under way when they are reached comes on top."""
    max_hours: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Hours that the job may run, loading of engines included."""
    price_per_gpu_hour: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Money, for the forecast."""
    price_per_million_tokens: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Money for sampled tokens, for the forecast."""


class LabelConfig(Config):
    """A labelling job."""

    out: Annotated[str, OPERATIONAL]
    """Folder or object store URL for the shards."""
    seed: int = Field(0, ge=0)
    problems: ProblemsConfig = ProblemsConfig()
    solutions: SolutionsConfig = SolutionsConfig()
    split: SplitConfig = SplitConfig()
    policy: PolicyConfig = PolicyConfig()
    estimator: EstimatorConfig = EstimatorConfig()
    block_problems: int = Field(8, ge=1)
    """Problems in a block, the unit of work and of a shard."""
    keep_rollouts: Annotated[bool, OPERATIONAL] = True
    """Write rollout texts, so that a better checker can grade them again."""
    journal_s: Annotated[float, OPERATIONAL] = Field(60, gt=0, allow_inf_nan=False)
    """Seconds between two flushes of the journals: what a kill costs of an engine's work."""
    budget: Annotated[BudgetConfig, OPERATIONAL] = BudgetConfig()
    strict: Annotated[bool, OPERATIONAL] = False
    """Stop at the first row or problem that cannot be labelled, in place of leaving it out."""
    ray: Annotated[RayConfig, OPERATIONAL] = RayConfig()


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
    head: Literal["token", "likelihood"] = "token"
    """`token`: token classification, the standard. `likelihood`: uses what the base says of each
    step's tokens, too; better where the base is small."""
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
    micro_batch: Annotated[int | None, OPERATIONAL] = Field(None, ge=1)
    """Solutions of a worker that are in memory at a time: gradients are accumulated."""
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
    ray: Annotated[RayConfig, OPERATIONAL] = RayConfig()
    """Of more than one worker; `num_cpus` and `num_gpus` are each worker's."""


class BestOfNConfig(Config):
    """Best-of-N evaluation of PRMs, ORMs and likelihoods."""

    out: Annotated[str, OPERATIONAL]
    """Folder for the samples, the figures and the plot."""
    problems: ProblemsConfig = ProblemsConfig()
    exclude: list[str] = Field([])
    """Runs of `mclabel label` that the scorers were trained on: problems with the same text are
    left out."""
    policy: PolicyConfig = PolicyConfig()
    samples: int = Field(16, ge=1)
    """Solutions of each problem: the largest N."""
    run: str | None = None
    """A run of `mclabel label` whose solutions are read, in place of sampling."""
    group_by: list[str] = Field(["family", "level", "subject", "answer_type"])
    """Fields of the problems' metadata that get rows of their own, where there are such."""
    scorers: dict[str, str] = Field({})
    """Name: folder of a PRM or an ORM."""
    likelihood: dict[str, str] = Field({})
    """Name: language model whose likelihood of a solution is its score."""
    aggregate: list[Literal["last", "min", "product", "mean", "max", "log_odds"]] = Field(
        ["last", "min", "product", "mean"], min_length=1
    )
    """How the step scores of a PRM become one score."""
    threads: Annotated[int | None, OPERATIONAL] = Field(None, ge=1)
    """For the scorers, on a CPU; by default one a core."""
    seed: int = Field(0, ge=0)
    block_problems: int = Field(8, ge=1)
    ray: RayConfig = RayConfig()


C = TypeVar("C", bound=Config)


def load_config(kind: type[C], path: str | Path | None, overrides: Sequence[str] = ()) -> C:
    """Read a configuration and check it as a whole.

    Args:
        kind: what to read.
        path: YAML file; None for overrides alone.
        overrides: `dotted.key=value`, values in YAML.

    Raises:
        ConfigError: the file is missing or no YAML, a key is unknown (the nearest one is
            named), a value has the wrong type or range. All faults at once.
    """
    content = _read_yaml(Path(path)) if path is not None else {}
    for override in overrides:
        _apply(content, override)
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        where = f" Mend {path} or pass key=value." if path is not None else ""
        faults = "\n".join(f"  {_fault(kind, dict(e))}" for e in error.errors())
        raise ConfigError(
            f"the configuration cannot be used:\n{faults}\n{where.strip()}".rstrip()
        ) from None


def bundled_config(name: str) -> Path:
    """A configuration that comes with the package, e.g. `label/quickstart.yaml`."""
    package = Path(__file__).parent
    installed = package / "configs" / name
    return installed if installed.is_file() else package.parent / "configs" / name


def config_file(path: str | Path) -> Path:
    """The file of a configuration: the one at `path`, or the bundled `configs/…` of that name."""
    path = Path(path)
    if not path.is_file() and path.parts[:1] == ("configs",):
        return bundled_config("/".join(path.parts[1:]))
    return path


def _read_yaml(path: Path) -> dict[str, Any]:
    path = config_file(path)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such configuration file") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: not a readable YAML file: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: must hold keys and values, holds a {type(content).__name__}")
    return content


def _apply(content: dict[str, Any], override: str) -> None:
    key, equals, raw = override.partition("=")
    if not equals or not key:
        raise ConfigError(
            f"{override!r}: overrides are written key=value, e.g. estimator.kind=bisect"
        )
    try:
        new = yaml.safe_load(raw)
    except yaml.YAMLError as error:
        why = getattr(error, "problem", None) or "cannot be read"
        raise ConfigError(f"{key}: the value is not YAML: {why}. Quote it: {key}='\"…\"'") from None
    *parents, last = key.split(".")
    for parent in parents:
        child = content.setdefault(parent, {})
        if not isinstance(child, dict):
            raise ConfigError(f"{override!r}: {parent} holds a value, not keys")
        content = child
    content[last] = new


def _fault(kind: type[Config], error: Mapping[str, Any]) -> str:
    path = [str(part) for part in error["loc"]]
    key = ".".join(path)
    if error["type"] == "extra_forbidden":
        known = _known_keys(kind)
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.5) or difflib.get_close_matches(
            path[-1], known, n=1, cutoff=0.5
        )
        return f"{key}: unknown key" + (f"; did you mean {near[0]}?" if near else "")
    if error["type"] == "missing":
        return f"{key}: required. Set it in the file or pass {key}=…"
    if error["type"] == "value_error":  # of a rule of ours, which says what is wrong
        return f"{key}: {error['ctx']['error']}"
    shown = key if _sensitive(kind, path) else f"{key}={error['input']!r}"
    return f"{shown}: {error['msg'].lower()}"


def _sensitive(kind: type[Config], path: Sequence[str]) -> bool:
    """Whether a value at this place could be a secret."""
    current: Any = kind
    for part in path:
        if not (isinstance(current, type) and issubclass(current, Config)):
            break
        info = current.model_fields.get(part)
        if info is None:
            return False
        if SENSITIVE in info.metadata:
            return True
        current = info.annotation
    return False


def _known_keys(kind: type[Config], parent: str = "") -> list[str]:
    keys = []
    for name, info in kind.model_fields.items():
        keys.append(parent + name)
        if isinstance(info.annotation, type) and issubclass(info.annotation, Config):
            keys += _known_keys(info.annotation, f"{parent}{name}.")
    return keys
