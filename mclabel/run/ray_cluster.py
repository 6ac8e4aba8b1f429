"""Access to a Ray cluster: connects to it, lists nodes, and reserves resources for actors."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mclabel.core.errors import EngineError
from mclabel.engines.devices import EngineResources

CONNECT_S = 5.0
"""Maximum seconds to wait for a cluster's port to accept a connection."""


def connect_to_ray(address: str) -> None:
    """Connect this process to a Ray cluster, or start Ray on this machine.

    Args:
        address: value of `ray.address`: `local`, `auto` or HOST:PORT.

    Raises:
        EngineError: the cluster cannot be reached, or rejects the connection.
    """
    if address == "local":
        enable_token_authentication()
    import ray

    if ray.is_initialized():
        return
    # By default Ray runs engines at low priority, even on a dedicated machine. It also hides GPUs
    # from actors that request none, and warns that this will change.
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    host, _, port = address.rpartition(":")
    with explain_ray_errors(address):
        if port.isdigit():  # fail fast: Ray itself would try for a minute
            socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.WARNING,
            include_dashboard=False if address == "local" else None,
        )


@contextmanager
def explain_ray_errors(address: str) -> Iterator[None]:
    """Convert an error of `ray.init` inside the context into an `EngineError` with a remedy.

    Args:
        address: address that is passed to `ray.init`.

    Raises:
        EngineError: `ray.init` failed.
    """
    from ray.exceptions import AuthenticationError, RayError

    try:
        yield
    except AuthenticationError as error:
        raise EngineError(
            f"ray.address={address!r}: the cluster requires an authentication token: {TOKEN_ADVICE}"
        ) from error
    except (OSError, ValueError, RuntimeError, RayError) as error:
        raise EngineError(
            f"ray.address={address!r}: cannot connect: {error}. Give the address of a running "
            "cluster (`auto` on one of its nodes), or ray.address=local to start Ray on this "
            f"machine. If the cluster requires an authentication token: {TOKEN_ADVICE}"
        ) from error
    except Exception as error:
        if type(error) is not Exception:
            raise
        raise EngineError(  # Ray gives a node 30 s to start
            f"ray.address={address!r}: Ray did not start: {error} The machine may be too busy. Run "
            "the same command again when the machine is less busy. To run the job in one process "
            "without Ray, set ray.address=none"
        ) from error


def enable_token_authentication() -> None:
    """Enable token authentication for a Ray cluster that this process starts.

    Nothing is done if the user has set `RAY_AUTH_MODE`. Without the variable Ray uses tokens as
    well, but prints a warning. Ray reads the variable when it is imported.
    """
    imported = sys.modules.get("ray")
    if "RAY_AUTH_MODE" in os.environ or (imported is not None and imported.is_initialized()):
        return
    os.environ["RAY_AUTH_MODE"] = "token"
    if imported is not None:
        # `ray.init` does the same; there is no public interface.
        from ray._raylet import Config  # type: ignore[attr-defined]

        Config.initialize("")


TOKEN_ADVICE = (
    "Ray protects a cluster with a token unless it was started with RAY_AUTH_MODE=disabled. `ray "
    "get-auth-token` on the head node prints the token. Write the token to a file on this machine, "
    "and set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH to the path of the file"
)
"""Advice in messages about a cluster that rejects a missing or wrong token."""


def list_node_resources() -> list[Mapping[str, float]]:
    """Return the resources of each node that is alive, by resource name."""
    import ray

    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def list_draining_nodes() -> Collection[str]:
    """Return the ids of the nodes that Ray is about to remove from the cluster."""
    from ray._private.state import state  # as ray.train does; there is no public interface

    return set(state.get_draining_nodes())


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Reserved resources of one actor: its Ray options, and its placement group if it has one."""

    options: Mapping[str, Any]
    group: Any = None

    @classmethod
    def reserve(cls, resources: EngineResources) -> Placement:
        """Request resources from the cluster. An engine that needs several bundles of resources
        gets them on as few nodes as possible.
        """
        options: dict[str, Any] = {"num_cpus": resources.num_cpus, "num_gpus": resources.num_gpus}
        if not resources.bundles:
            return cls(options=options)
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        group = placement_group([dict(bundle) for bundle in resources.bundles], strategy="PACK")
        options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
            placement_group=group,
            placement_group_bundle_index=0,
            placement_group_capture_child_tasks=True,
        )
        return cls(options=options, group=group)

    def release(self) -> None:
        """Remove the placement group, which terminates all processes that still run in it."""
        if self.group is not None:
            from ray.util.placement_group import remove_placement_group

            remove_placement_group(self.group)
