"""What an output is known by: the identity of its configuration, and the versions that made it."""

from __future__ import annotations

import hashlib
from typing import Any

from mclabel.checkers import make_checker
from mclabel.core.errors import ConfigError, DataError
from mclabel.core.seeds import ID_LENGTH
from mclabel.core.settings import content_fields
from mclabel.data.boundaries import SPLITTER_VERSION
from mclabel.data.readers.remote import local_path
from mclabel.engines import make_engine
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.given import source_identity
from mclabel.labeling.policy import PreparedModels, PreparedPolicy
from mclabel.run.shards.manifest import Semantic


def semantic_config(config: LabelConfig, models: PreparedModels | None = None) -> Semantic:
    """What labels depend on: semantic fields, checker, rules of steps, content of local files.

    A local model is known by its content, so a folder may move, and may not change; so is a file
    that a setting names. Which engine runs the model is free to change; one that runs none is known
    by its name.

    Args:
        config: of a labelling job.
        models: of the job; their engines are made if there are none yet.
    """
    checker = make_checker(config.checker)
    if models is None:
        models = PreparedModels.of(
            config, lambda one: PreparedPolicy(settings=one, engine=make_engine(one))
        )
    known: dict[tuple[str, ...], Any] = {
        ("checker", "kind"): checker.name,
        ("checker", "version"): checker.version,
        ("split", "version"): SPLITTER_VERSION,
        ("policy", "model"): models.author.engine.model_identity(),
    }
    for number, one in enumerate(models.completers):
        if not one.settings.is_policy:
            known["completers", str(number), "model"] = one.policy.engine.model_identity()
    if config.solutions.run is not None:
        known["solutions", "run"] = source_identity(config.solutions.run)
    for path, file in content_fields(config):
        known[path] = _content_of(".".join(path), file)
    semantic = Semantic(identity=config.identity(), config=config.semantic())
    for path, value in known.items():
        for tree in (semantic.identity, semantic.config):
            _put(tree, path, value)
    return semantic


def _content_of(key: str, place: str) -> str:
    """A name of a file's content, which stays when the file moves."""
    try:
        content = local_path(place).read_bytes()
    except (DataError, OSError) as error:
        raise ConfigError(f"{key}={place!r}: cannot be read ({error})") from error
    return f"content:{hashlib.sha256(content).hexdigest()[:ID_LENGTH]}"


def _put(tree: Any, path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        tree = tree[int(name)] if isinstance(tree, list) else tree.setdefault(name, {})
    tree[path[-1]] = value
