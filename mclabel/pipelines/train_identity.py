"""What a training is known by: the blocks that it learns from, and the identity of its weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mclabel.config import TrainConfig
from mclabel.data.leaks import leak_keys
from mclabel.data.places import TRAINING
from mclabel.data.shards.labels import committed_blocks
from mclabel.data.shards.manifest import Semantic
from mclabel.data.shards.store import Store
from mclabel.engines.hub import weights_fingerprint
from mclabel.errors import DataError
from mclabel.pipelines.new_scorer import base_model
from mclabel.plain_files import check_plain
from mclabel.seeds import content_id

Blocks = list[list[str]]
"""Ids of the blocks of labels that are trained on, one list a run."""


def chosen_blocks(config: TrainConfig) -> Blocks:
    """The blocks to train on: those of the run's claim while all are there, else all that are."""
    now = [sorted(committed_blocks(Store(run))) for run in config.labels]
    then = _claimed_blocks(Path(config.out) / str(TRAINING.manifest))
    if len(then) == len(now) and all(set(a) <= set(b) for a, b in zip(then, now, strict=True)):
        return then
    return now


def semantic_config(config: TrainConfig, blocks: Blocks) -> Semantic:
    """What the weights depend on: semantic fields, the base's weights, the labels' content."""
    base = base_model(config)
    content: dict[str, Any] = {"labels": content_id(blocks)}
    if Path(base).is_dir():
        content["base"] = f"weights:{weights_fingerprint(Path(base))}"
    if config.evaluation:
        content["evaluation"] = content_id(sorted(leak_keys(config.evaluation)))
    return Semantic(
        identity={**config.identity(), **content}, config={**config.semantic(), **content}
    )


def _claimed_blocks(path: Path) -> Blocks:
    check_plain(path, DataError)
    try:
        return [list(names) for names in json.loads(path.read_text()).get("blocks", [])]
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return []  # `Run.look` reports what is wrong with a manifest
