"""Submits a labelling job to a Ray cluster from another machine, through Ray's job server."""

from __future__ import annotations

import asyncio
import logging
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mclabel.core.config.document import read_document
from mclabel.core.config.load import find_config_file, load_config
from mclabel.core.errors import ConfigError, EngineError
from mclabel.core.settings import list_content_fields
from mclabel.labeling.config import LabelConfig
from mclabel.run.ray_cluster import TOKEN_ADVICE

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

POLL_S = 1.0
"""Seconds between two requests to the job server."""
RETRY_S = 20.0
"""Seconds during which a rejected submission is repeated."""
_UPLOADED_CONFIG_NAME = "config.yaml"
"""Name of the configuration file in the job's working folder."""
_VERBOSE_LOGGERS = (
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
    "ray._private.runtime_env.packaging",
)


@dataclass(frozen=True, kw_only=True)
class SubmittedJob:
    """A job that the cluster has accepted."""

    id: str
    client: JobSubmissionClient


def submit_label(
    config: str,
    overrides: Sequence[str],
    *,
    address: str,
    allow: Sequence[str] = (),
    runtime_env: str | None = None,
) -> SubmittedJob:
    """Upload a configuration, and start `python -m mclabel label` with it on the cluster.

    Args:
        config: path of the YAML configuration.
        overrides: changes to the configuration in the form `key=value`.
        address: address of the job server, `http://HOST:8265`.
        allow: modules, packages or names of the form `module:Class` that the configuration may
            import, here and on the cluster.
        runtime_env: YAML file with Ray's runtime environment for the job; None for the default.

    Raises:
        ConfigError: the configuration is invalid, or names paths that the cluster cannot read.
        EngineError: the job server cannot be reached, or rejects the connection or the job.
    """
    checked = load_config(LabelConfig, config, overrides, allow=allow)
    _check_paths_reachable(checked)
    environment = _read_runtime_env(runtime_env)
    client = _connect_to_job_server(address)
    with tempfile.TemporaryDirectory(prefix="mclabel-") as folder:
        shutil.copy(find_config_file(config), Path(folder) / _UPLOADED_CONFIG_NAME)
        arguments = [_UPLOADED_CONFIG_NAME, *overrides, "ray.address=auto"]
        arguments += [f"--allow={name}" for name in allow]
        command = ["python", "-m", "mclabel", "label", *arguments]
        environment = {**environment, "working_dir": folder}
        try:
            identity = _submit_with_retries(client, shlex.join(command), environment)
        except (RuntimeError, ValueError, TypeError) as error:
            raise EngineError(f"{address}: the cluster rejects the job: {error}") from error
    return SubmittedJob(id=identity, client=client)


def _submit_with_retries(
    client: JobSubmissionClient, command: str, environment: dict[str, Any]
) -> str:
    """Submit a job and return its id.

    A job server that has just started rejects jobs for a while, so the submission is repeated for
    `RETRY_S` seconds.
    """
    deadline = time.monotonic() + RETRY_S
    while True:
        try:
            return client.submit_job(entrypoint=command, runtime_env=environment)
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)


def follow_job(job: SubmittedJob, echo: Callable[[str], None]) -> int:
    """Print a job's log until the job ends.

    Args:
        job: submitted job.
        echo: function that prints a piece of the log.

    Returns:
        The exit code of the job.
    """
    asyncio.run(_print_log(job, echo))
    while not job.client.get_job_status(job.id).is_terminal():  # the connection broke
        time.sleep(POLL_S)
    info = job.client.get_job_info(job.id)
    if info.driver_exit_code is not None:
        return int(info.driver_exit_code)
    if str(info.status) == "SUCCEEDED":
        return 0
    echo(f"{info.message}\n")  # the job's process never started
    return 1


async def _print_log(job: SubmittedJob, echo: Callable[[str], None]) -> None:
    import aiohttp

    try:
        async for piece in job.client.tail_job_logs(job.id):
            echo(piece)
    except (RuntimeError, aiohttp.ClientError) as error:  # the connection broke, not the job
        echo(f"[the log cannot be followed any more: {error}; the job continues]\n")


def _check_paths_reachable(config: LabelConfig) -> None:
    """Check that the cluster can read the paths of the configuration.

    Relative paths and `ray.address=none` have no meaning there.

    Raises:
        ConfigError: a setting has no meaning on the cluster. The message lists all of them.
    """
    faults = []
    places = {
        "out": config.out,
        "problems.source": config.problems.source if config.problems.reads_files else None,
        "solutions.path": config.solutions.path,
        **{".".join(path): place for path, place in list_content_fields(config)},
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
        faults.append("ray.address='none': a submitted job runs on the cluster. Remove ray.address")
    if faults:
        raise ConfigError("\n".join(faults))


def _read_runtime_env(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        content = read_document(Path(path))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path}: is not a readable YAML file ({error}). Give a file with the keys of a Ray "
            "runtime_env"
        ) from error
    if not isinstance(content, dict):
        raise ConfigError(
            f"{path}: is of type {type(content).__name__}, but must be a mapping with the keys of "
            "a Ray runtime_env, such as pip. Correct the file"
        )
    if "working_dir" in content:
        raise ConfigError(
            f"{path}: must not set working_dir, because mclabel uploads the configuration in it. "
            "Remove working_dir"
        )
    return content


def _connect_to_job_server(address: str) -> JobSubmissionClient:
    import requests
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    for name in _VERBOSE_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    if "://" not in address:
        address = f"http://{address}"
    if not address.startswith(("http://", "https://")):
        raise EngineError(
            f"--address {address}: must be the address of the job server. Give http://HOST:8265"
        )
    try:
        return JobSubmissionClient(address)
    except AuthenticationError as error:
        raise EngineError(
            f"--address {address}: the cluster requires an authentication token: {TOKEN_ADVICE}"
        ) from error
    except (ConnectionError, RuntimeError, requests.RequestException) as error:
        raise EngineError(
            f"--address {address}: no job server answers ({type(error).__name__}). Give the "
            "address of the dashboard of a running cluster, http://HOST:8265; from outside a "
            "Kubernetes cluster first `kubectl port-forward service/HEAD 8265`"
        ) from error
