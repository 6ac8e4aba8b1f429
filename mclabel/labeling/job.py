"""A labelling job from its configuration, and what its output is known by.

`submit_label` runs it on a Ray cluster from outside, through the cluster's job server.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mclabel.checkers import make_checker
from mclabel.core.config.document import read_document
from mclabel.core.config.load import config_file, load_config
from mclabel.core.errors import CheckerError, ConfigError, DataError, EngineError
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
from mclabel.run.ray_cluster import token_advice
from mclabel.run.run import Run, run_task
from mclabel.run.shards.manifest import Semantic, versions
from mclabel.run.tally import JobReport, JobState

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient


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
        config: of the job.
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
        forces=models.forces,
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
    batched = any(getattr(one.settings.engine, "batch", False) for one in models.all.values())
    if batched and config.estimator.kind not in ONE_ROUND:
        logger.warning(
            "policy.engine.batch=true: estimator.kind=%s asks in rounds, as outcomes decide what "
            "it asks next, and each round waits for a batch, which may take a day. Choose "
            "estimator.kind=fixed, which takes two batches, or leave out batch",
            config.estimator.kind,
        )


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


POLL_S = 1.0
ACCEPT_S = 20.0
_UPLOADED = "config.yaml"
_TALKATIVE = (
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
    "ray._private.runtime_env.packaging",
)


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """A job that the cluster has taken."""

    id: str
    client: JobSubmissionClient


def submit_label(
    config: str,
    overrides: Sequence[str],
    *,
    address: str,
    allow: Sequence[str] = (),
    runtime_env: str | None = None,
) -> Submitted:
    """Upload a configuration and start `python -m mclabel label` on it, on the cluster.

    Args:
        config: YAML file.
        overrides: `key=value`.
        address: of the job server, `http://HOST:8265`.
        allow: modules and names that the configuration may use, here and on the cluster.
        runtime_env: YAML file of Ray's runtime environment for the job.

    Raises:
        ConfigError: the configuration cannot be used, or not from another machine.
        EngineError: the job server cannot be reached, or refuses us or the job.
    """
    checked = load_config(LabelConfig, config, overrides, allow=allow)
    _check_reachable(checked)
    environment = _runtime_env(runtime_env)
    client = _client(address)
    with tempfile.TemporaryDirectory(prefix="mclabel-") as folder:
        shutil.copy(config_file(config), Path(folder) / _UPLOADED)
        arguments = [_UPLOADED, *overrides, "ray.address=auto"]
        arguments += [f"--allow={one}" for one in allow]
        command = ["python", "-m", "mclabel", "label", *arguments]
        environment = {**environment, "working_dir": folder}
        try:
            identity = _accepted(client, shlex.join(command), environment)
        except (RuntimeError, ValueError, TypeError) as error:
            raise EngineError(f"{address}: the cluster refuses the job: {error}") from error
    return Submitted(id=identity, client=client)


def _accepted(client: JobSubmissionClient, command: str, environment: dict[str, Any]) -> str:
    """The id of a job; a job server that has just started turns jobs away for a while."""
    deadline = time.monotonic() + ACCEPT_S
    while True:
        try:
            return client.submit_job(entrypoint=command, runtime_env=environment)
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)


def follow(job: Submitted, echo: Callable[[str], None]) -> int:
    """Pass the job's log on until it ends.

    Args:
        job: to follow.
        echo: called with pieces of the log.

    Returns:
        The exit code of the job.
    """
    asyncio.run(_tail(job, echo))
    while not job.client.get_job_status(job.id).is_terminal():  # the connection broke
        time.sleep(POLL_S)
    info = job.client.get_job_info(job.id)
    if info.driver_exit_code is not None:
        return int(info.driver_exit_code)
    if str(info.status) == "SUCCEEDED":
        return 0
    echo(f"{info.message}\n")  # it never began
    return 1


async def _tail(job: Submitted, echo: Callable[[str], None]) -> None:
    import aiohttp

    try:
        async for piece in job.client.tail_job_logs(job.id):
            echo(piece)
    except (RuntimeError, aiohttp.ClientError) as error:  # the connection, not the job
        echo(f"[the log cannot be followed any more: {error}; the job goes on]\n")


def _check_reachable(config: LabelConfig) -> None:
    """Refuse paths that mean nothing on another machine."""
    faults = []
    places = {
        "out": config.out,
        "problems.source": config.problems.source if config.problems.reads_files else None,
        "solutions.path": config.solutions.path,
        **{".".join(path): place for path, place in content_fields(config)},
    }
    for key, place in places.items():
        if place is None or "://" in place:
            continue
        if not Path(place).is_absolute():
            faults.append(
                f"{key}={place!r}: the cluster has another working folder. Give an absolute path "
                "on a file system that all nodes share, or a URL"
            )
    if config.ray.address == "none":
        faults.append("ray.address='none': a submitted job runs on the cluster. Leave it out")
    if faults:
        raise ConfigError("\n".join(faults))


def _runtime_env(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        content = read_document(Path(path))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: not a readable YAML file: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: must hold the keys of a Ray runtime_env, such as pip")
    if "working_dir" in content:
        raise ConfigError(
            f"{path}: must not set working_dir, in which the configuration is uploaded. Remove it"
        )
    return content


def _client(address: str) -> JobSubmissionClient:
    import requests
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    if "://" not in address:
        address = f"http://{address}"
    if not address.startswith(("http://", "https://")):
        raise EngineError(
            f"--address {address}: must be the address of the job server, http://HOST:8265"
        )
    try:
        return JobSubmissionClient(address)
    except AuthenticationError as error:
        raise EngineError(
            f"--address {address}: the cluster requires an authentication token: {token_advice()}"
        ) from error
    except (ConnectionError, RuntimeError, requests.RequestException) as error:
        raise EngineError(
            f"--address {address}: no job server answers ({type(error).__name__}). Give the "
            "address of the dashboard of a running cluster, http://HOST:8265; from outside a "
            "Kubernetes cluster first `kubectl port-forward service/HEAD 8265`"
        ) from error
