"""Runs a labelling job from its configuration, and computes the identity of its output."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection
from typing import Any

from mclabel.checkers import make_checker
from mclabel.core.errors import CheckerError, ConfigError, DataError
from mclabel.core.records import AUTHOR
from mclabel.core.seeds import ID_LENGTH
from mclabel.core.settings import list_content_fields
from mclabel.data.boundaries import SPLITTER_VERSION
from mclabel.data.readers.rows import download_if_url
from mclabel.engines import make_engine
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.inputs import (
    extract_input_config,
    identify_source_run,
    load_inputs,
    open_source_run,
)
from mclabel.labeling.journal import advise_regrading, may_resume_with_changes
from mclabel.labeling.policy import PreparedModels, PreparedPolicy
from mclabel.labeling.task import LabelTask
from mclabel.run.blocks import JobBlocks
from mclabel.run.run import RunOutput, run_task
from mclabel.run.shards.manifest import SemanticConfig, collect_package_versions
from mclabel.run.tally import JobReport, JobState

logger = logging.getLogger(__name__)


def label(
    config: LabelConfig,
    on_state: Callable[[JobState], None],
    *,
    choose_blocks: Callable[[JobBlocks], Collection[str]] | None = None,
    accept_changes: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
) -> JobReport:
    """Run a labelling job. Configuration, inputs and models are checked before anything is written.

    When a run is resumed, its models are checked only if unfinished blocks remain, because the
    imports of the check take seconds.

    Problems that cannot be labelled are skipped. `rejects.jsonl` lists them with reasons, even if
    the job is stopped early. The job ends early when it reaches a limit of the budget. Running it
    again with a larger budget continues it.

    Args:
        config: configuration of the job.
        on_state: callback that receives the job's state every few seconds or more often.
        choose_blocks: function that returns the ids of the blocks to label now; None labels all
            blocks.
        accept_changes: relabel problems that changed since the run started, and drop problems that
            were removed. If False, such changes are an error.
        should_stop: function that is polled during the job. Once it returns True, no further
            block is started, and running blocks are interrupted; their journals keep the
            completions.
    """
    run = RunOutput.inspect(config.out)
    models = PreparedModels.prepare_all(config)
    config = models.with_resolved_settings(config)
    if not run.is_claimed:
        models.check_ready()
    semantic = make_semantic_config(config, models)
    source = open_source_run(config, semantic)
    inputs = load_inputs(config, source)
    run.check_config(semantic, may_resume_with_changes)
    task = LabelTask(
        make_policy=models.author.engine_factory(config.seed),
        completers=models.estimator_completers,
        make_completers={
            name: model.engine_factory(config.seed)
            for name, model in models.by_name.items()
            if name != AUTHOR
        },
        source=source,
        settings=config,
        provenance=run.shard_metadata(
            versions=collect_package_versions(models.packages), input=extract_input_config(config)
        ),
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
            choose_blocks=choose_blocks,
            should_stop=should_stop,
            prepare=models.check_ready if run.is_claimed else lambda: None,
        )
    except CheckerError as error:
        assert run.store is not None, "nothing is graded before the output is claimed"
        raise advise_regrading(error, run.store) from error


def make_semantic_config(
    config: LabelConfig, models: PreparedModels | None = None
) -> SemanticConfig:
    """Return everything on which a job's labels depend.

    These are the semantic settings (those that determine labels), the versions of checker and step
    splitter, and hashes of local files. A local model or a file that a setting names is identified
    by its content, so it may move to another path but must not change. The engine that runs a model
    may change. An engine that does not run a model is identified by its name.

    Args:
        config: configuration of a labelling job.
        models: prepared models of the job; None creates their engines here.
    """
    checker = make_checker(config.checker)
    if models is None:
        models = PreparedModels.prepare_all(
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
        contents["solutions", "run"] = identify_source_run(config.solutions.run)
    for path, file in list_content_fields(config):
        contents[path] = _hash_file_content(".".join(path), file)
    semantic = SemanticConfig(identity=config.identity(), config=config.semantic())
    for path, value in contents.items():
        for tree in (semantic.identity, semantic.config):
            _set_value_at_path(tree, path, value)
    return semantic


def _hash_file_content(key: str, path: str) -> str:
    """Return an identifier of a file's content, which stays the same when the file is moved.

    Args:
        key: configuration key that names the file, for the error message.
        path: path of the file.
    """
    try:
        content = download_if_url(path).read_bytes()
    except (DataError, OSError) as error:
        raise ConfigError(
            f"{key}={path!r}: cannot be read ({error}). Give a readable file"
        ) from error
    return f"content:{hashlib.sha256(content).hexdigest()[:ID_LENGTH]}"


def _set_value_at_path(tree: Any, path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        tree = tree[int(name)] if isinstance(tree, list) else tree.setdefault(name, {})
    tree[path[-1]] = value
