"""Runs a labelling job on a Ray cluster from outside, through the cluster's job server."""

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
from mclabel.core.config.load import config_file, load_config
from mclabel.core.errors import ConfigError, EngineError
from mclabel.core.settings import content_fields
from mclabel.labeling.config import LabelConfig
from mclabel.run.ray_cluster import TOKEN_ADVICE

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

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
        address: address of the job server, `http://HOST:8265`.
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
        arguments += [f"--allow={name}" for name in allow]
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
            f"--address {address}: the cluster requires an authentication token: {TOKEN_ADVICE}"
        ) from error
    except (ConnectionError, RuntimeError, requests.RequestException) as error:
        raise EngineError(
            f"--address {address}: no job server answers ({type(error).__name__}). Give the "
            "address of the dashboard of a running cluster, http://HOST:8265; from outside a "
            "Kubernetes cluster first `kubectl port-forward service/HEAD 8265`"
        ) from error
