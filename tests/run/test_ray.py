"""Jobs on a real Ray and on a real cluster of two nodes, with token authentication."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil
import pytest

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.core.errors import EngineError
from mclabel.engines import Policy
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.task import LabelTask
from mclabel.run.fleets import RayFleet
from mclabel.run.leases import LeaseBook
from mclabel.run.settings import RayConfig
from mclabel.run.shards.labels import read_committed_block_ids, read_labels, read_rollouts
from mclabel.run.shards.store import Store
from mclabel.run.shards.trees import read_trees
from mclabel.run.task import Block
from mclabel.run.worker import Worker
from mclabel.search.config import SearchConfig
from tests.support.commands import run_verb
from tests.support.exactness import check_exact
from tests.support.forked import Forked
from tests.support.job_processes import (
    HANGS_S,
    last_state,
    wait_for_work,
    wait_until,
    worker_actors,
)
from tests.support.ports import free_port
from tests.support.scripted_jobs import (
    run_label_job,
    scripted_overrides,
    write_config,
    write_problems,
)
from tests.support.searches import check_trees

pytestmark = pytest.mark.ray

TWO = "ray.max_engines=2"
TWO_MODELS = "completers=[{model: policy, cost: 1}, {model: x, cost: 2, engine: scripted}]"


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("bisect", ()),
        ("fixed", (TWO_MODELS,)),
    ],
)
def test_rows_through_ray_equal_those_in_process(
    tmp_path: Path, kind: str, more: tuple[str, ...]
) -> None:
    source = write_problems(tmp_path, 30)
    rows = {}
    for address in ("none", "local"):
        out = tmp_path / address
        changes = scripted_overrides(
            source, out, TWO, f"ray.address={address}", f"estimator.kind={kind}", *more
        )
        run_label_job(changes)
        store = Store(str(out))
        rows[address] = (list(read_labels(store)), list(read_rollouts(store)))
    assert rows["none"] == rows["local"]


def _search(source: Path, out: Path, *more: str) -> list[str]:
    keys = [f"problems.source={source}", f"out={out}", "block_problems=3", "scorer=constant"]
    keys += ["search=beam", "search.n=4", "search.width=2", "policy.max_tokens=1000"]
    return [*keys, TWO, *more]


def test_trees_through_ray_equal_those_in_process(tmp_path: Path) -> None:
    source, trees = write_problems(tmp_path, 12), {}
    for address in ("none", "local"):
        out = tmp_path / address
        more = [f"ray.address={address}", "policy.engine=scripted"]
        jobs.search(load_config(SearchConfig, None, _search(source, out, *more)))
        trees[address] = {tree.problem_id: tree for tree in read_trees(Store(str(out)))}
    assert trees["none"] == trees["local"]
    check_trees(trees["local"].values(), [f"p{i}" for i in range(12)])


def test_an_engine_that_cannot_load_stops_the_job_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "llama"}')
    changes = [f"out={tmp_path / 'out'}", "problems.limit=1", f"policy.model={tmp_path / 'model'}"]
    with pytest.raises(EngineError, match="its tokenizer cannot be loaded"):
        run_label_job(changes)


def test_a_node_that_does_not_start_is_one_message(tmp_path: Path) -> None:
    """Ray waits half a minute for a node, which a very busy machine may take to start one."""
    source = write_problems(tmp_path, 1)
    keys = scripted_overrides(source, tmp_path / "out", "ray.address=local", "ray.max_engines=1")
    job = Forked("label", write_config(tmp_path), *keys)
    while not (started := [child for child in psutil.Process(job.pid).children(recursive=True)
                           if child.name() == "raylet"]):  # fmt: skip
        assert job.poll() is None
        time.sleep(0.01)
    started[0].suspend()
    output, _ = job.communicate(HANGS_S)
    assert job.returncode == 2, output
    printed = " ".join(output.split())
    assert "Ray did not start" in printed and "without Ray, set ray.address=none" in printed
    assert "Traceback" not in output
    psutil.wait_procs(started, 60)
    assert not started[0].is_running()


def test_a_job_without_room_says_what_the_nodes_have(tmp_path: Path, shared_cluster: str) -> None:
    source = write_problems(tmp_path, 1)
    more = [f"ray.address={shared_cluster}", "ray.num_gpus=1", "ray.wait_s=0.1"]
    changes = scripted_overrides(source, tmp_path / "out", *more)
    reason = (
        r"room for only 0 of the 1 engines \(ray.min_engines\) after ray.wait_s=0.1"
        r".*\d+ CPUs and 0 GPUs"
    )
    with pytest.raises(EngineError, match=reason):
        run_label_job(changes)


OWN = "tests.support.own_engine:ConstantEngine"
ENDED = (
    f"exited without an error message.*It ran .*{OWN}.* from outside mclabel, "
    "which may have called os._exit"
)


@pytest.mark.parametrize(
    ("make_policy", "reason"),
    [(partial(os._exit, 3), ENDED), (partial(int, "no weights"), "'no weights'")],
)
def test_three_failed_loads_stop_the_job(
    tmp_path: Path, make_policy: Callable[[], Policy], reason: str
) -> None:
    config = load_config(LabelConfig, None, [f"out={tmp_path}", f"policy.engine={OWN}"])
    task = LabelTask(make_policy=make_policy, settings=config, provenance={})
    fleet = RayFleet(
        partial(Worker, task, out=str(tmp_path)), RayConfig(address="local", max_engines=1)
    )
    book = LeaseBook([Block(id="b", items=(), priority=0)], num_blocks=1)
    with pytest.raises(EngineError, match=f"(?s)failed to load 3 times.*{reason}.*latest/logs"):
        list(fleet.run(book, lambda progress: None))


def test_an_engine_that_is_asked_to_go_leaves_its_journal(
    tmp_path: Path, shared_cluster: str
) -> None:
    source, out = write_problems(tmp_path, 8), tmp_path / "out"
    more = [f"ray.address={shared_cluster}", "ray.max_engines=1", "journal_s=1000"]
    more += ["block_problems=8"]
    more += ["policy.engine={kind: scripted, repeatable: false, delay_s: 1.0}"]
    driver = subprocess.Popen(
        [
            *[sys.executable, "-m", "mclabel", "label", str(write_config(tmp_path))],
            *scripted_overrides(source, out, *more),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_for_work(out, driver)
    (actor,) = worker_actors()
    actor.terminate()
    actor.wait(timeout=60)
    assert list((out / "journals").rglob("*.gz"))
    output, _ = driver.communicate(timeout=HANGS_S)
    assert driver.returncode == 0, output
    check_exact(out, 8)
    assert last_state(out)["num_replayed"] > 0 and last_state(out)["num_failures"] == 1


ROOT = Path(__file__).parents[2]
TIMEOUT_S = 240


@dataclass
class Cluster:
    """A Ray cluster with a head node and a worker node, which have two CPUs each."""

    port: int
    dashboard: int
    metrics: int
    environment: dict[str, str]
    temporary: str
    nodes: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *arguments: str, **changes: str) -> subprocess.Popen[str]:
        """Start a command in the cluster's environment."""
        return subprocess.Popen(
            arguments,
            env={**self.environment, **changes},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )

    def run(self, *arguments: str, **changes: str) -> tuple[int, str]:
        """Run a command, and return its exit code and its output."""
        process = self.start(*arguments, **changes)
        output, _ = process.communicate(timeout=TIMEOUT_S)
        return process.returncode, output

    def submit(self, folder: Path, *overrides: str) -> list[str]:
        """Return the command `mclabel submit label` with an empty configuration."""
        address = f"http://127.0.0.1:{self.dashboard}"
        command = [sys.executable, "-m", "mclabel", "submit", "label", f"--address={address}"]
        return [*command, str(write_config(folder)), *overrides]

    def add_node(self, *arguments: str) -> None:
        # another cluster may use Ray's default port
        agent = f"--dashboard-agent-listen-port={free_port()}"
        self.nodes.append(
            subprocess.Popen(
                ["ray", "start", "--block", "--num-cpus=2", agent, *arguments],
                env=self.environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    token = tmp_path_factory.mktemp("token") / "token"
    token.write_text(secrets.token_hex(32))
    started = Cluster(
        port=free_port(),
        dashboard=free_port(),
        metrics=free_port(),
        environment={
            **os.environ,
            "RAY_AUTH_MODE": "token",
            "RAY_metrics_report_interval_ms": "1000",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        },
        temporary=tempfile.mkdtemp(prefix="ray-"),  # tmp_path is too long for Ray's sockets
    )
    try:
        head = [f"--port={started.port}", f"--dashboard-port={started.dashboard}"]
        head += [f"--metrics-export-port={started.metrics}", f"--temp-dir={started.temporary}"]
        started.add_node("--head", *head)
        wait_for_port(started.dashboard)
        started.add_node(f"--address=127.0.0.1:{started.port}")
        yield started
    finally:
        for node in reversed(started.nodes):
            if node.poll() is None:
                kill_tree(node)  # after SIGTERM, Ray's nodes drain for a minute
                node.wait()
        shutil.rmtree(started.temporary, ignore_errors=True)


def test_submitted_by_ray(cluster: Cluster, tmp_path: Path) -> None:
    """Run `ray job submit -- python jobs/label.py`, as the script's docstring says."""
    source, out = write_problems(tmp_path, 8), tmp_path / "out"
    code, output = cluster.run(
        *["ray", "job", "submit", f"--address=http://127.0.0.1:{cluster.dashboard}", "--"],
        *[sys.executable, str(ROOT / "jobs" / "label.py"), str(write_config(tmp_path))],
        *scripted_overrides(source, out),
    )
    assert code == 0, output
    assert "num_items=8" in output
    check_exact(out, 8)


def test_code_that_a_file_names_is_allowed_on_the_cluster_too(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A job that fails on the cluster ends the command with the job's message and exit code."""
    submit = cluster.submit(
        tmp_path, *scripted_overrides(write_problems(tmp_path, 1), tmp_path / "out")
    )
    write_config(tmp_path).write_text("checker: shlex:quote")
    assert (
        "checker: shlex:quote is code that is named only in a file"
        in run_verb(submit[3:], code=2).output
    )
    code, output = cluster.run(*submit, "--allow=shlex")
    assert code == 2 and "checker=shlex:quote: its parameter s gets no value" in output


def test_wrong_tokens_are_named(cluster: Cluster, tmp_path: Path) -> None:
    """Each command runs in its own process, because Ray reads a token once per process."""
    wrong = tmp_path / "wrong"
    wrong.write_text("0123456789abcdef0123456789abcdef")
    right = Path(cluster.environment["RAY_AUTH_TOKEN_PATH"]).read_text()
    mine = scripted_overrides(write_problems(tmp_path, 1), tmp_path / "out")
    submit = cluster.submit(tmp_path, *mine)[3:]
    label = ["label", str(write_config(tmp_path)), *mine, f"--address=127.0.0.1:{cluster.port}"]
    right_ones = {
        name: cluster.environment[name] for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")
    }
    nothing = {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN_PATH": "", "HOME": str(tmp_path)}
    for command, changes, message in [
        (submit, {"RAY_AUTH_TOKEN_PATH": str(wrong)}, "authentication token: Ray protects"),
        (submit, nothing, "requires an authentication token: Ray protects"),
        ([*label, f"--address=127.0.0.1:{free_port()}"], {}, "cannot connect"),
        (label, nothing, "authentication token: Ray protects"),
        (label, {"RAY_AUTH_TOKEN_PATH": str(wrong)}, "authentication token: Ray protects"),
    ]:
        job = Forked(*command, **{**right_ones, **changes})
        output, _ = job.communicate(TIMEOUT_S)
        assert job.returncode == 2, output
        assert message in " ".join(output.split())
        assert "Traceback" not in output
        assert right not in output and wrong.read_text() not in output


def test_a_node_that_drains_leaves_journals_and_its_end_costs_nothing_more(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The job is submitted by mclabel, and Prometheus sees its metrics.

    This test is the last one of its cluster, because it kills the worker node.
    """
    source, out = write_problems(tmp_path, 24), tmp_path / "out"
    address = f"127.0.0.1:{cluster.port}"
    code, worker = cluster.run(sys.executable, "-c", WORKER_NODE.format(address=address))
    assert code == 0, worker
    more = ["journal_s=1000", "ray.min_engines=2", "ray.max_engines=2", "ray.num_cpus=2"]
    more += ["block_problems=12", "policy.engine={kind: scripted, repeatable: false, delay_s: 2}"]
    job = cluster.start(*cluster.submit(tmp_path, *scripted_overrides(source, out, *more)))
    # Both engines must be at work first: no engine starts on a draining node.
    wait_until(lambda: last_state(out).get("num_workers") == 2, job)
    code, output = cluster.run(
        *["ray", "drain-node", f"--address={address}", f"--node-id={worker.split()[-1]}"],
        *["--reason=DRAIN_NODE_REASON_PREEMPTION", "--reason-message=spot"],
        "--deadline-remaining-seconds=600",
    )
    assert code == 0, output
    wait_until(lambda: any((out / "journals").rglob("*.gz")), job)
    assert not read_committed_block_ids(Store(str(out)))
    kill_tree(cluster.nodes[1])
    seen: set[str] = set()
    while job.poll() is None:
        seen |= metrics(cluster.metrics)
        time.sleep(1)
    output, _ = job.communicate()
    assert job.returncode == 0, output
    assert "24 problems, 96 solutions" in output
    assert {"mclabel_num_live", "mclabel_num_tokens_total"} <= seen
    assert Path(cluster.environment["RAY_AUTH_TOKEN_PATH"]).read_text() not in output
    check_exact(out, 24)
    assert last_state(out)["num_replayed"] > 0
    assert last_state(out)["num_failures"] == 1
    assert not any((out / "journals").rglob("*.gz"))


WORKER_NODE = """
import time
import ray
ray.init(address="{address}", log_to_driver=False)
found = []
while not found:
    time.sleep(0.5)
    found = [n["NodeID"] for n in ray.nodes() if "node:__internal_head__" not in n["Resources"]]
print(*found)
"""
"""A script that waits for nodes other than the head, and prints their ids."""


def kill_tree(process: subprocess.Popen[str]) -> None:
    """Kill a process and all its descendants by SIGKILL, so that no process can clean up."""
    for member in [
        *psutil.Process(process.pid).children(recursive=True),
        psutil.Process(process.pid),
    ]:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()


def metrics(port: int) -> set[str]:
    """Return the names of the metrics that Prometheus would scrape."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
            lines = page.read().decode().splitlines()
    except OSError:
        return set()
    names = {line.partition("{")[0] for line in lines if "mclabel" in line and line[0] != "#"}
    return {name.removeprefix("ray_") for name in names}


def wait_for_port(port: int, timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with socket.socket() as connection:
            if connection.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.5)
    raise TimeoutError(f"nothing listens on port {port} after {timeout_s} s")
