"""A Ray cluster: to join it, what its nodes have, which are about to go, and places for actors."""

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


def connect(address: str) -> None:
    """Connect this process to Ray, or start one.

    Raises:
        EngineError: nothing answers there, or it does not let us in.
    """
    if address == "local":
        ask_for_tokens()
    import ray

    if ray.is_initialized():
        return
    # Ray would run engines at low priority even where the machine is theirs, and would hide
    # GPUs from actors that ask for none, with a warning that it will stop doing so.
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    host, _, port = address.rpartition(":")
    with explained(address):
        if port.isdigit():  # Ray itself would try for a minute
            socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.WARNING,
            include_dashboard=False if address == "local" else None,
        )


@contextmanager
def explained(address: str) -> Iterator[None]:
    """Say what to do where `ray.init` fails.

    Args:
        address: the address that `ray.init` is given.

    Raises:
        EngineError: it failed.
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
            f"ray.address={address!r}: Ray did not start: {error} The machine may be too busy: run "
            "the same command again when it is less so. A job of one process needs no Ray: "
            "ray.address=none"
        ) from error


def ask_for_tokens() -> None:
    """Ask for token authentication in a cluster that this process starts, unless the user chose.

    Without a choice Ray takes tokens, too, and warns that one may decline. It reads the variable
    when it is imported.
    """
    imported = sys.modules.get("ray")
    if "RAY_AUTH_MODE" in os.environ or (imported is not None and imported.is_initialized()):
        return
    os.environ["RAY_AUTH_MODE"] = "token"
    if imported is not None:
        # As ray.init does: there is no public way.
        from ray._raylet import Config  # type: ignore[attr-defined]

        Config.initialize("")


TOKEN_ADVICE = (
    "Ray protects a cluster with a token unless it was started with RAY_AUTH_MODE=disabled. `ray "
    "get-auth-token` on the head node prints the token: write it to a file here, and set "
    "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH to the file's name"
)
"""Remedy where a cluster refuses the token of this process, or its lack of one."""


def node_resources() -> list[Mapping[str, float]]:
    """Return what each living node has."""
    import ray

    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def draining_nodes() -> Collection[str]:
    """Return the ids of the nodes that Ray will take away."""
    from ray._private.state import state  # as ray.train does: there is no public way

    return set(state.get_draining_nodes())


@dataclass(frozen=True, kw_only=True)
class Place:
    """Resources of one actor: its options, and its placement group if it needs one."""

    options: Mapping[str, Any]
    group: Any = None

    @classmethod
    def of(cls, resources: EngineResources) -> Place:
        """Ask the cluster for a place. A group's bundles lie on as few nodes as have room."""
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

    def give_back(self) -> None:
        """Return the group's bundles to the cluster; what still runs in them ends."""
        if self.group is not None:
            from ray.util.placement_group import remove_placement_group

            remove_placement_group(self.group)
