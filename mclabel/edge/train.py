"""A training run from its configuration."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mclabel.config import TrainConfig
from mclabel.data.manifest import check_claim, claim
from mclabel.data.shards import committed_blocks, read_labels
from mclabel.data.store import Store
from mclabel.edge.label import versions
from mclabel.edge.policy import resolve_model
from mclabel.errors import ConfigError
from mclabel.policy.hub import model_source, weights_fingerprint
from mclabel.policy.text import PolicyText
from mclabel.seeds import content_id

CLAIM = "train.json"


@dataclass(frozen=True, kw_only=True)
class TrainReport:
    """What a training run did."""

    model: str
    """Folder of the finished PRM."""
    num_solutions: int
    """Trained on."""
    num_validation: int
    num_unlabeled: int
    num_refused: int
    first_refused: str | None
    validation: dict[str, float | None]
    """Figures at the end."""


def train(config: TrainConfig, on_progress: Callable[[int, int, str], None]) -> TrainReport:
    """Train a PRM or an ORM. Run again, it resumes; when it has ended, it does nothing.

    Args:
        config: what to train.
        on_progress: called with optimizer steps done and in all, and the loss.
    """
    out = Path(config.out)
    if out.exists() and not out.is_dir():
        raise ConfigError(f"out={config.out!r}: is a file, must be a folder")
    base = model_source(resolve_model(config.base))
    semantic = _semantic(config, base)
    if out.is_dir():
        check_claim(Store(config.out), CLAIM, semantic)
    report_path = out / "model" / "report.json"
    if report_path.is_file():
        return TrainReport(**json.loads(report_path.read_text()))

    import torch
    import transformers
    from transformers import AutoConfig

    from mclabel.prm.examples import make_examples
    from mclabel.prm.model import start_step_model
    from mclabel.prm.score import PrmManifest, step_encoder
    from mclabel.prm.train import TrainSettings, train_step_model

    text = PolicyText.load(
        base, revision=config.revision, template=config.template, system=config.system
    )
    limit = AutoConfig.from_pretrained(base, revision=config.revision).get_text_config()
    manifest = PrmManifest(
        kind="orm" if config.target == "outcome" else "prm",
        head=config.head,
        step_token=_step_token(config, text),
        template=config.template,
        system=config.system,
        max_tokens=min(config.max_tokens or 10**9, limit.max_position_embeddings),
    )
    rows = (row for run in config.labels for row in read_labels(Store(run)))
    examples = make_examples(
        rows,
        step_encoder(text, manifest),
        target=config.target,
        validation=config.validation,
    )
    claim(Store(config.out, create=True), CLAIM, semantic, {"versions": versions()})
    torch.set_num_threads(config.threads)
    transformers.set_seed(config.seed)
    model = start_step_model(base, config.head, revision=config.revision, dtype=config.dtype)
    model.to(config.device)
    validation = train_step_model(
        model,
        examples.train,
        examples.validation,
        out,
        settings=TrainSettings(
            **{name: getattr(config, name) for name in TrainSettings.__dataclass_fields__}
        ),
        on_progress=on_progress,
    )
    report = TrainReport(
        model=str(out / "model"),
        num_solutions=len(examples.train),
        num_validation=len(examples.validation),
        num_unlabeled=examples.num_unlabeled,
        num_refused=examples.num_refused,
        first_refused=examples.first_refused,
        validation=asdict(validation),
    )
    partial = out / "model.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    model.save(partial)
    text.save(partial)
    manifest.save(partial)
    (partial / "README.md").write_text(_card(config, report))
    (partial / "report.json").write_text(json.dumps(asdict(report), indent=1) + "\n")
    partial.rename(out / "model")
    return report


def _semantic(config: TrainConfig, base: str) -> dict[str, Any]:
    """What the weights depend on: semantic fields, the base's weights, the labels' content."""
    semantic = config.semantic()
    if Path(base).is_dir():
        semantic["base"] = f"weights:{weights_fingerprint(Path(base))}"
    stores = [Store(run) for run in config.labels]
    semantic["labels"] = content_id([sorted(committed_blocks(store)) for store in stores])
    return semantic


def _step_token(config: TrainConfig, text: PolicyText) -> str | None:
    if config.head == "likelihood":
        if config.step_token is not None:
            raise ConfigError(
                f"step_token={config.step_token!r}: head=likelihood scores at each step's last "
                "token and takes none. Leave it out"
            )
        return None
    token = config.step_token or text.step_token
    if token is None:
        raise ConfigError(
            f"base={config.base!r}: its tokenizer reserves no step token. Name one of its unused "
            "special tokens with step_token=…, or use head=likelihood, which needs none"
        )
    return token


def _card(config: TrainConfig, report: TrainReport) -> str:
    figures = "\n".join(
        f"| {name.replace('_', ' ')} | {'-' if value is None else round(value, 4)} |"
        for name, value in report.validation.items()
    )
    kind = "An outcome" if config.target == "outcome" else "A process"
    base = config.base.replace("\n", " ")
    return f"""---
library_name: mclabel
tags: [process-reward-model]
---
{kind} reward model, trained by mclabel on {report.num_solutions} solutions ({config.target}
labels from rollouts of the policy), head `{config.head}`, from `{base}`.

A score estimates how likely the labelling policy is to end right from a step on (soft labels), or
whether it still can (hard labels). It is not a proof that the step is right.

```python
from mclabel.prm.score import PRM

PRM.load("…").score([problem], [solution])  # one number in [0, 1] for each step
```

| validation, on problems held out of training | |
|---|---|
{figures}
"""
