"""The worlds of the chaos benchmark: processes, nodes, stores, and the faults that strike them."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import psutil

from mclabel.run.shards.store import Store
from tests.support.flaky_s3 import FlakyS3, flaky_s3, s3_environment
from tests.support.job_processes import worker_actors

FLUSH_S = 2.0
NUM_SCRIPTED, NUM_BUNDLED = 32, 8
"""Numbers of problems with the scripted policy and with the bundled policy."""
STALL_S = 10.0
TIGHT_BYTES = 300
"""File size limit for torn writes: a process can begin a file but cannot finish it."""
DISK_MB = 64

Where = Literal["process", "cluster"]
Storage = Literal["folder", "disk", "s3"]
Engine = Literal["scripted", "bundled"]


@dataclass(frozen=True)
class Setting:
    """The place, the storage and the engine of a seed."""

    where: Where
    storage: Storage
    engine: Engine
    others: bool = False
    """True if another model samples rollouts beside the policy."""

    def __str__(self) -> str:
        return f"{self.where}, {self.storage}, {self.engine}" + ", two models" * self.others


WORLDS = (
    Setting("process", "s3", "scripted"),
    Setting("cluster", "folder", "scripted", others=True),
    Setting("process", "disk", "bundled"),
    Setting("cluster", "s3", "scripted"),
    Setting("process", "folder", "scripted", others=True),
    Setting("process", "disk", "scripted"),
    Setting("cluster", "folder", "bundled"),
    Setting("process", "s3", "bundled"),
)


@contextmanager
def open_world(setting: Setting, rng: random.Random) -> Iterator[World]:
    """Create the world of a setting, and remove it afterwards."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        world = World(setting=setting, rng=rng, folder=folder)
        if setting.storage == "disk":
            stack.enter_context(_disk(world))
        if setting.storage == "s3":
            world.s3 = stack.enter_context(flaky_s3("chaos"))
            world.s3.stall_s = STALL_S
            environment = s3_environment(world.s3)
            world.environment |= environment
            stack.enter_context(_environment(environment))  # the check of the output also reads S3
        if setting.where == "cluster":
            world.cluster = Nodes()
            stack.callback(world.cluster.shutdown)
        stack.callback(world.end)
        yield world


@dataclass(kw_only=True)
class World:
    """The surroundings of a labelling job: its storage, its nodes and its drivers."""

    setting: Setting
    rng: random.Random
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    s3: FlakyS3 | None = None
    cluster: Nodes | None = None
    disk: Path | None = None
    """Separate small file system, or None if the setting has none or it cannot be mounted."""
    drivers: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def num_engines(self) -> int:
        return 2 if self.cluster is not None else 1

    def overrides(self, out: str) -> list[str]:
        """Return the configuration overrides of the job that writes to `out`."""
        base = self.disk or self.folder / "runs"
        where = f"s3://chaos/{self.folder.name}/{out}" if self.s3 is not None else str(base / out)
        address = self.cluster.address if self.cluster is not None else "none"
        changes = [f"out={where}", f"ray.address={address}", f"journal_s={FLUSH_S}"]
        changes += ["ray.max_engines=2", "estimator.kind=fixed", "estimator.rollouts=6"]
        if self.setting.engine == "bundled":
            few = [f"problems.limit={NUM_BUNDLED}", "block_problems=2", "solutions.per_problem=2"]
            return [*changes, "problems.source=arith", *few]
        source = self.folder / "problems.jsonl"
        rows = [
            {"id": f"p{i}", "problem": f"P{i} [answer {i}]", "answer": str(i), "level": str(i % 5)}
            for i in range(NUM_SCRIPTED)
        ]
        if not source.exists():  # running drivers read the file
            source.write_text("\n".join(map(json.dumps, rows)))
        scripted = (
            "policy.engine={kind: scripted, repeatable: false, delay_s: 0.4, truncate_rate: 0.05}"
        )
        if self.setting.others:
            engine = scripted.removeprefix("policy.engine=")
            other_model = f"{{model: another, cost: 2, engine: {engine}}}"
            changes.append(f"completers=[{{model: policy, cost: 1}}, {other_model}]")
        return [
            *changes,
            *[f"problems.source={source}", "policy.engine=scripted", scripted, "block_problems=4"],
        ]

    def start(self, out: str) -> subprocess.Popen[str]:
        """Start a driver that labels into `out`."""
        config = self.folder / "empty.yaml"
        config.write_text("seed: 1\n")
        driver = subprocess.Popen(
            [sys.executable, "-m", "mclabel", "label", str(config), *self.overrides(out)],
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.drivers.append(driver)
        return driver

    def wait_for_work(self, driver: subprocess.Popen[str], out: str) -> bool:
        """Wait until the driver has engines at work; return False if the driver has ended."""
        while driver.poll() is None:
            if self.cluster is None or self.cluster.actors():
                store = Store(self.overrides(out)[0].removeprefix("out="), create=True)
                if store.names("drivers"):
                    return True
            time.sleep(0.2)
        return False

    def wait_for_end(self, driver: subprocess.Popen[str]) -> int:
        """Wait until the driver ends, and return its exit code."""
        output, _ = driver.communicate(timeout=300)
        if "Traceback" in output:
            raise RuntimeError(f"The driver failed with a traceback:\n{output}")
        return driver.returncode

    def break_something(self, driver: subprocess.Popen[str]) -> str:
        """Inject one random fault and return its name."""
        kinds: dict[str, Callable[[subprocess.Popen[str]], None]] = {
            "driver killed": lambda process: process.kill(),
            "driver told to end": lambda process: process.send_signal(signal.SIGTERM),
        }
        if self.cluster is not None:
            kinds |= {
                "actor killed": lambda _: self._cluster().kill_actor(self.rng),
                "node killed": lambda _: self._cluster().kill_node(self.rng),
                "node drained": lambda _: self._cluster().drain_node(self.rng),
            }
        if self.setting.storage != "s3":
            kinds["torn writes"] = self._tear_writes
        if self.disk is not None:
            kinds["disk full"] = lambda _: self._fill_disk()
        if self.s3 is not None:
            kinds |= {
                "s3 errors": lambda _: self._fail_s3(),
                "s3 stalls": lambda _: self._stall(),
            }
        kind = self.rng.choice(sorted(kinds))
        kinds[kind](driver)
        return kind

    def heal(self) -> None:
        """Remove all faults from the store."""
        if self.s3 is not None:
            self.s3.fault = lambda method, path: "ok"
        if self.disk is not None:
            (self.disk / "ballast").unlink(missing_ok=True)
        if self.cluster is not None:
            for actor in self.cluster.actors():
                with contextlib.suppress(psutil.Error):
                    _limit_file_size(actor.pid, resource.RLIM_INFINITY)

    def end(self) -> None:
        """Kill all drivers that still run."""
        for driver in self.drivers:
            if driver.poll() is None:
                driver.kill()
                driver.wait()

    def _tear_writes(self, driver: subprocess.Popen[str]) -> None:
        """Limit the file sizes of all processes that write shards, so that writes fail half-way."""
        writers = [actor.pid for actor in self.cluster.actors()] if self.cluster else [driver.pid]
        for pid in writers:
            with contextlib.suppress(ProcessLookupError):
                _limit_file_size(pid, TIGHT_BYTES)

    def _fill_disk(self) -> None:
        assert self.disk is not None
        with contextlib.suppress(OSError), (self.disk / "ballast").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))

    def _fail_s3(self) -> None:
        """Let most requests of the next few seconds fail, each in one of several ways."""
        assert self.s3 is not None
        until = time.monotonic() + self.rng.uniform(1, 4)
        dice = random.Random(self.rng.random())

        def fault(method: str, path: str) -> Any:
            ways = ["ok", "503", "drop", "lose answer" if method == "PUT" else "drop"]
            return dice.choice(ways) if time.monotonic() < until else "ok"

        self.s3.fault = fault

    def _stall(self) -> None:
        """Leave the next request without an answer for `STALL_S` seconds."""
        assert self.s3 is not None
        stalls = [1]

        def fault(method: str, path: str) -> Any:
            return "stall" if stalls and stalls.pop() else "ok"

        self.s3.fault = fault

    def _cluster(self) -> Nodes:
        assert self.cluster is not None
        return self.cluster


class Nodes:
    """A local Ray cluster: a head without room for engines, and two nodes with one engine each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._before = {child.pid for child in psutil.Process().children(recursive=True)}
        self._cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
        )
        self.address = str(self._cluster.address)
        self._nodes = [self._cluster.add_node(num_cpus=1) for _ in range(2)]

    def actors(self) -> list[psutil.Process]:
        """Return the processes of the engines."""
        return [actor for actor in worker_actors() if actor.pid not in self._before]

    def kill_actor(self, rng: random.Random) -> None:
        if actors := self.actors():
            with contextlib.suppress(psutil.NoSuchProcess):
                rng.choice(actors).kill()

    def kill_node(self, rng: random.Random) -> None:
        """Kill a random node and all of its processes, and add a fresh node."""
        node = self._nodes.pop(rng.randrange(len(self._nodes)))
        self._cluster.remove_node(node, allow_graceful=False)
        self._nodes.append(self._cluster.add_node(num_cpus=1))

    def drain_node(self, rng: random.Random) -> None:
        """Announce through Ray that a node will be removed, and remove it soon after."""
        node = self._nodes[0]
        reason = ["--reason=DRAIN_NODE_REASON_PREEMPTION", "--reason-message=spot"]
        subprocess.run(
            [
                *["ray", "drain-node", f"--address={self.address}", f"--node-id={node.node_id}"],
                *[*reason, "--deadline-remaining-seconds=600"],
            ],
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            check=True,
            capture_output=True,
            timeout=60,
        )
        time.sleep(rng.uniform(1, 4))
        self._nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)
        self._nodes.append(self._cluster.add_node(num_cpus=1))

    def shutdown(self) -> None:
        self._cluster.shutdown()


@contextmanager
def _disk(world: World) -> Iterator[None]:
    """Mount a small file system in memory; use a folder if this user may not mount one."""
    path = world.folder / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(path)]
    if subprocess.run(command, capture_output=True).returncode != 0:
        yield
        return
    world.disk = path
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@contextmanager
def _environment(changes: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, content in before.items():
            if content is None:
                del os.environ[name]
            else:
                os.environ[name] = content


def _limit_file_size(pid: int, num_bytes: int) -> None:
    """Limit the size of files that a process writes; a write past the limit fails half-way."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (num_bytes, resource.RLIM_INFINITY))
