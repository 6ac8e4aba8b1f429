"""The training job of a PRM or an ORM, from labels to a saved model with its model card."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mclabel.core.cores import limit_to_cores
from mclabel.core.errors import DataError
from mclabel.core.plain_files import check_plain
from mclabel.core.records import LabeledSolution
from mclabel.core.seeds import content_id
from mclabel.core.settings import Count, read_record
from mclabel.data.leaks import read_leak_keys
from mclabel.data.repeats import check_runs_distinct
from mclabel.engines.devices import check_device
from mclabel.engines.hub import compute_weights_fingerprint
from mclabel.prm.config import TrainConfig
from mclabel.prm.examples.targets import find_target
from mclabel.prm.new_scorer import NewScorer, resolve_base_model
from mclabel.prm.training.settings import check_trackers
from mclabel.run.outputs import TRAINING
from mclabel.run.run import RunOutput
from mclabel.run.shards.labels import read_committed_block_ids, read_labels
from mclabel.run.shards.manifest import SemanticConfig, collect_package_versions
from mclabel.run.shards.store import Store
from mclabel.run.trainings import MODEL, check_training_finished, describe_model_remedy

if TYPE_CHECKING:
    from mclabel.prm.examples.build import Examples
    from mclabel.prm.training.callbacks import Validation
    from mclabel.prm.training.preflight import Preflight


OnProgress = Callable[[int, int, str], None]
OnPreflight = Callable[["Preflight"], None]


def train(
    config: TrainConfig,
    on_progress: OnProgress,
    on_preflight: OnPreflight = lambda figures: None,
) -> TrainReport:
    """Train a PRM or an ORM, and return a report.

    A second call with the same configuration resumes an interrupted run. It returns the stored
    report if the run has finished. The labelling runs may still be in progress: training uses the
    blocks that were committed when training began.

    Args:
        config: configuration of the training run.
        on_progress: called with completed and total optimizer steps, and the loss as text.
        on_preflight: called with figures of the training data, before training begins.
    """
    out = Path(config.out)
    run = RunOutput.inspect(config.out, TRAINING)
    blocks = choose_blocks(config)
    run.check_config(collect_semantic_inputs(config, blocks))
    if (report := _read_finished_report(out)) is not None:
        return report
    check_runs_distinct(config.labels, "labels")
    check_trackers(config.report_to)
    scorer = NewScorer.prepare(config)
    examples = read_examples(scorer, blocks)
    figures = _compute_preflight(scorer, examples)
    on_preflight(figures)
    figures.check_targets_differ()
    run.claim({"versions": collect_package_versions(), "blocks": blocks})
    if config.workers == 1:
        fit_scorer(scorer, examples, on_progress)
    else:
        from mclabel.prm.training.distributed import run_workers

        run_workers(
            partial(_train_worker, config, blocks),
            address=config.ray.address,
            num_workers=config.workers,
            num_cpus=1.0 if config.ray.num_cpus is None else config.ray.num_cpus,
            num_gpus=float(scorer.config.device != "cpu")
            if config.ray.num_gpus is None
            else config.ray.num_gpus,
            storage=out / "ray",
        )
    report = _read_finished_report(out)
    assert report is not None
    return report


def preflight(config: TrainConfig) -> Preflight:
    """Check the data of a training run, and return its figures. No file is written."""
    check_runs_distinct(config.labels, "labels")
    check_trackers(config.report_to)
    scorer = NewScorer.prepare(config)
    return _compute_preflight(scorer, read_examples(scorer, choose_blocks(config)))


def read_examples(scorer: NewScorer, blocks: Blocks) -> Examples:
    """Read labels, select and encode the solutions, and hold out a part for validation."""
    from mclabel.prm.examples.build import make_examples

    check_device(scorer.config.device)
    return make_examples(_read_labelled_rows(scorer.config, blocks), scorer.encoder, scorer.config)


def fit_scorer(scorer: NewScorer, examples: Examples, on_progress: OnProgress) -> None:
    """Train the network and save it. If several workers train it, only the first one saves it.

    Args:
        scorer: scorer to train.
        examples: training and validation examples.
        on_progress: called with completed and total optimizer steps, and the loss as text.
    """
    import torch
    import transformers

    from mclabel.prm.training.distributed import gather_state_dict, is_first_worker, shard_model
    from mclabel.prm.training.trainer import train_step_model

    config, out = scorer.config, Path(scorer.config.out)
    torch.set_num_threads(limit_to_cores(config.threads))
    transformers.set_seed(config.seed)
    model = scorer.build_model()
    if config.shard:
        shard_model(
            model, torch.device(config.device).type, bf16=config.uses_mixed_precision(config.device)
        )
    else:
        model.to(config.device)
    validation = train_step_model(
        model,
        examples.train,
        examples.validation,
        out,
        settings=config,
        on_progress=on_progress,
    )
    weights = gather_state_dict(model) if config.shard else None
    if not is_first_worker():
        return
    if weights is not None:
        model = scorer.build_model()
        model.load_state_dict(weights)
    report = _make_report(out, examples, validation)
    scorer.save(
        model,
        out / "model",
        extra_files={
            "README.md": format_model_card(config, report),
            "report.json": json.dumps(asdict(report), indent=1) + "\n",
        },
    )


def _train_worker(config: TrainConfig, blocks: Blocks) -> None:
    """Read the data and train on this worker's share of every batch."""
    scorer = NewScorer.prepare(config)
    fit_scorer(scorer, read_examples(scorer, blocks), lambda step, total, detail: None)


def _read_labelled_rows(config: TrainConfig, blocks: Blocks) -> Iterator[LabeledSolution]:
    for run, names in zip(config.labels, blocks, strict=True):
        yield from read_labels(Store(run), set(names))


def _compute_preflight(scorer: NewScorer, examples: Examples) -> Preflight:
    from mclabel.prm.training.preflight import preflight as check_examples

    report = check_examples(
        examples,
        target=scorer.config.target,
        decode=scorer.text.decode,
    )
    return replace(report, fitting=_describe_training_setup(scorer.config))


def _describe_training_setup(config: TrainConfig) -> str:
    """Describe in one line what is trained, after null and `auto` are resolved."""
    rank, device = config.lora_rank, config.device
    rate = config.resolve_body_learning_rate(has_adapters=rank is not None)
    body = "the base's weights" if rank is None else f"LoRA adapters of rank {rank}"
    trained = (
        f"{body} at {rate:g}, the head at {config.head_lr:g}"
        if rate
        else (f"the head alone at {config.head_lr:g}")
    )
    dtype = config.weights_dtype(device, trains_weights=rate > 0 and rank is None)
    mixed = " and mixed precision (bfloat16)" if config.uses_mixed_precision(device) else ""
    return f"trains {trained}; on {device}, with the base in {dtype}{mixed}"


def _make_report(out: Path, examples: Examples, validation: Validation) -> TrainReport:
    return TrainReport(
        model=str(out / "model"),
        num_solutions=len(examples.train),
        num_validation=len(examples.validation),
        num_unlabeled=examples.num_unlabeled,
        num_leaked=examples.num_leaked,
        num_too_long=examples.num_too_long,
        num_cut=examples.num_cut,
        num_refused=examples.num_refused,
        first_refused=examples.first_refused,
        validation=asdict(validation),
    )


def _read_finished_report(out: Path) -> TrainReport | None:
    """Return the stored report of a finished training run; None if the run has not finished."""
    path = out / MODEL / "report.json"
    if not path.parent.is_dir():
        return None
    check_training_finished(out)
    try:
        return read_record(TrainReport, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: damaged ({error}). {describe_model_remedy(out)}") from error


Blocks = list[list[str]]
"""Ids of the blocks of labels to train on, one list per labelling run."""


def choose_blocks(config: TrainConfig) -> Blocks:
    """Return the blocks to train on.

    These are the blocks recorded in the manifest of the output folder, if all of them still exist.
    Otherwise they are all committed blocks.
    """
    now = [sorted(read_committed_block_ids(Store(run))) for run in config.labels]
    then = _read_manifest_blocks(Path(config.out) / str(TRAINING.manifest))
    if len(then) == len(now) and all(set(a) <= set(b) for a, b in zip(then, now, strict=True)):
        return then
    return now


def collect_semantic_inputs(config: TrainConfig, blocks: Blocks) -> SemanticConfig:
    """Return everything on which the trained weights depend.

    It consists of the semantic settings, the base's weights, and the content of the labels.
    """
    base = resolve_base_model(config)
    content: dict[str, Any] = {"labels": content_id(blocks)}
    if Path(base).is_dir():
        content["base"] = f"weights:{compute_weights_fingerprint(Path(base))}"
    if config.evaluation:
        content["evaluation"] = content_id(sorted(read_leak_keys(config.evaluation)))
    return SemanticConfig(
        identity={**config.identity(), **content}, config={**config.semantic(), **content}
    )


def _read_manifest_blocks(path: Path) -> Blocks:
    check_plain(path, DataError)
    try:
        return [list(names) for names in json.loads(path.read_text()).get("blocks", [])]
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return []  # `RunOutput.inspect` reports errors of the manifest


def format_model_card(config: TrainConfig, report: TrainReport) -> str:
    """Return the model card of a scorer: its training, the meaning of its scores, its figures.

    Args:
        config: configuration of the training run.
        report: report of the training run.
    """
    figures = "\n".join(
        f"| {name.replace('_', ' ')} | {'-' if value is None else round(value, 4)} |"
        for name, value in report.validation.items()
    )
    kind = "An outcome" if find_target(config.target).is_outcome else "A process"
    base = config.base.replace("\n", " ")
    return f"""---
library_name: mclabel
tags: [process-reward-model]
---
{kind} reward model, trained by mclabel on {report.num_solutions} solutions
({config.target} labels), head `{config.head}`, from `{base}`.

A score has the meaning of the labels. With soft labels from rollouts, it estimates the probability
that the labelling policy reaches the right answer from this step on. With hard labels, it estimates
whether the policy still can. It is not a proof that the step is right.

```python
from mclabel.prm import PRM

PRM.load("…").score([problem], [solution])  # one number in [0, 1] for each step
```

| validation, on problems held out of training | |
|---|---|
{figures}
"""


@dataclass(frozen=True, kw_only=True)
class TrainReport:
    """Result of a training run."""

    model: str
    """Folder of the finished PRM."""
    num_solutions: Count
    """Number of solutions in the training set."""
    num_validation: Count
    """Number of solutions in the validation set."""
    num_unlabeled: Count
    """Number of solutions left out because they have no target."""
    num_leaked: Count
    """Number of solutions left out because their problems are in an evaluation set."""
    num_too_long: Count
    """Number of solutions left out because they are too long."""
    num_cut: Count
    """Number of solutions of which only the first steps are kept."""
    num_refused: Count
    """Number of solutions left out because they cannot be encoded."""
    first_refused: str | None
    """Message on the first solution that is too long or cannot be encoded; None if none is."""
    validation: dict[str, float | None]
    """Validation metrics after training, by name."""
