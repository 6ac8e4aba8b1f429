"""A labelling job from its configuration, and what its output is known by."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from mclabel.checkers import make_checker
from mclabel.core.errors import CheckerError, ConfigError, DataError
from mclabel.core.seeds import ID_LENGTH
from mclabel.core.settings import content_fields
from mclabel.data.boundaries import SPLITTER_VERSION
from mclabel.data.readers.rows import local_path
from mclabel.engines import make_engine
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.inputs import input_config, load_inputs, open_source, source_identity
from mclabel.labeling.journal import may_mend, with_committed
from mclabel.labeling.policy import PreparedModels, PreparedPolicy
from mclabel.labeling.task import LabelTask
from mclabel.run.blocks import JobBlocks
from mclabel.run.run import Run, run_task
from mclabel.run.shards.manifest import Semantic, versions
from mclabel.run.tally import JobReport, JobState

if TYPE_CHECKING:
    pass


logger = logging.getLogger(__name__)

ONE_ROUND = ("fixed", "outcome")
"""Estimators all of whose rollouts are known once the solutions are."""


def label(
    config: LabelConfig,
    on_state: Callable[[JobState], None],
    *,
    choose: Callable[[JobBlocks], Collection[str]] | None = None,
    accept_changes: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
) -> JobReport:
    """Run a labelling job. Everything that can be wrong with it is found before it writes.

    The model of a run that was begun is known by its files, and is looked at only if work is left:
    that takes seconds of imports.

    What cannot be labelled is left out; `rejects.jsonl` says why, also if the job is stopped. On
    reaching a limit of the budget it ends early, and goes on when it is run with a larger one.

    Args:
        config: configuration of the job.
        on_state: called often with its state.
        choose: ids of the blocks to label now; None labels all.
        accept_changes: label problems anew that have changed since the run was begun, and leave out
            what is gone; else either is refused.
        should_stop: asked often; no block is begun once it is true, those under way leave their
            journals.
    """
    run = Run.look(config.out)
    models = PreparedModels.of(config)
    config = models.settled(config)
    if not run.was_begun:
        models.check()
    _warn_of_rounds(config, models)
    semantic = semantic_config(config, models)
    source = open_source(config, semantic)
    inputs = load_inputs(config, source)
    run.check(semantic, may_mend)
    task = LabelTask(
        make_policy=models.author.maker(config.seed),
        completers=models.rolling,
        make_completers=models.makers(config.seed),
        source=source,
        settings=config,
        provenance=run.stamp(versions=versions(models.packages), input=input_config(config)),
        keep_rollouts=config.keep_rollouts,
    )
    try:
        return run_task(
            task,
            run,
            inputs,
            config,
            resources=lambda: models.resources(config.ray),
            block_items=config.block_problems,
            journal_s=config.journal_s,
            on_state=on_state,
            accept_changes=accept_changes,
            choose=choose,
            should_stop=should_stop,
            prepare=models.check if run.was_begun else lambda: None,
        )
    except CheckerError as error:
        assert run.store is not None, "nothing is graded before the output is claimed"
        raise with_committed(error, run.store) from error


def _warn_of_rounds(config: LabelConfig, models: PreparedModels) -> None:
    """Say that a job waits for a batch again and again, where it does."""
    batched = any(getattr(model.settings.engine, "batch", False) for model in models.all.values())
    if batched and config.estimator.kind not in ONE_ROUND:
        logger.warning(
            "policy.engine.batch=true: estimator.kind=%s asks in rounds, as outcomes decide what "
            "it asks next, and each round waits for a batch, which may take a day. Choose "
            "estimator.kind=fixed, which takes two batches, or leave out batch",
            config.estimator.kind,
        )


def semantic_config(config: LabelConfig, models: PreparedModels | None = None) -> Semantic:
    """Return what labels depend on: semantic fields, checker, rules of steps, content of local
    files.

    A local model is known by its content, so a folder may move, and may not change; so is a file
    that a setting names. Which engine runs the model is free to change; one that runs none is known
    by its name.

    Args:
        config: configuration of a labelling job.
        models: models of the job; their engines are made if there are none yet.
    """
    checker = make_checker(config.checker)
    if models is None:
        models = PreparedModels.of(
            config,
            lambda completer: PreparedPolicy(settings=completer, engine=make_engine(completer)),
        )
    contents: dict[tuple[str, ...], Any] = {
        ("checker", "kind"): checker.name,
        ("checker", "version"): checker.version,
        ("split", "version"): SPLITTER_VERSION,
        ("policy", "model"): models.author.engine.model_identity(),
    }
    for number, completer in enumerate(models.completers):
        if not completer.settings.is_author:
            contents["completers", str(number), "model"] = completer.policy.engine.model_identity()
    if config.solutions.run is not None:
        contents["solutions", "run"] = source_identity(config.solutions.run)
    for path, file in content_fields(config):
        contents[path] = _content_of(".".join(path), file)
    semantic = Semantic(identity=config.identity(), config=config.semantic())
    for path, value in contents.items():
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
