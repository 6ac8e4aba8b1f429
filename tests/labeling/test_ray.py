"""The job on a real Ray: the same rows as in-process, and exact after kills."""

from __future__ import annotations

import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import ray
from exactness import check_exact

from mclabel import edge
from mclabel.config import LabelConfig, load_config
from mclabel.data.shards import committed_blocks, read_labels, read_rollouts
from mclabel.data.store import Store
from mclabel.errors import EngineError

pytestmark = pytest.mark.ray

NUM_KILLED = 360  # problems: enough that ten kills come before the end


@pytest.fixture(autouse=True)
def own_ray() -> Iterator[None]:
    """Each test starts and ends without a Ray of this process."""
    yield
    ray.shutdown()


def problems(folder: Path, count: int) -> Path:
    path = folder / "problems.jsonl"
    rows = [
        {"id": f"p{i}", "problem": f"P{i} [answer {i}]", "answer": str(i)} for i in range(count)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def overrides(source: Path, out: Path, *more: str) -> list[str]:
    base = [f"problems.source={source}", f"out={out}", "policy.engine=scripted"]
    return [*base, "block_problems=4", "estimator.rollouts=4", "ray.max_engines=2", *more]


@pytest.mark.parametrize("kind", ["fixed", "bisect"])
def test_rows_through_ray_equal_those_in_process(tmp_path: Path, kind: str) -> None:
    source = problems(tmp_path, 30)
    rows = {}
    for address in ("none", "local"):
        out = tmp_path / address
        changes = overrides(source, out, f"ray.address={address}", f"estimator.kind={kind}")
        edge.label(load_config(LabelConfig, None, changes), lambda state: None)
        store = Store(str(out))
        rows[address] = (list(read_labels(store)), list(read_rollouts(store)))
    assert rows["none"] == rows["local"]


def test_an_engine_that_cannot_load_stops_the_job_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "llama"}')
    changes = [f"out={tmp_path / 'out'}", "problems.limit=1", f"policy.model={tmp_path / 'model'}"]
    with pytest.raises(EngineError, match="no tokenizer can be loaded"):
        edge.label(load_config(LabelConfig, None, changes), lambda state: None)


def test_submitted_to_a_cluster_of_two_nodes(tmp_path: Path) -> None:
    """`ray job submit -- python jobs/label.py` on a head and a worker node of this machine."""
    source, out = problems(tmp_path, 12), tmp_path / "out"
    token = tmp_path / "token"
    token.write_text(secrets.token_hex(32))
    port, dashboard = free_port(), free_port()
    folder = tempfile.mkdtemp(prefix="ray-")  # tmp_path is too long for Ray's sockets
    environment = {
        **os.environ,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }

    def command(*arguments: str, stdout: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["ray", *arguments],
            env=environment,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=Path(__file__).parents[2],
            start_new_session=True,
        )

    head = command(
        *["start", "--head", "--block", f"--port={port}", f"--dashboard-port={dashboard}"],
        *["--num-cpus=2", f"--temp-dir={folder}"],
    )
    nodes = [head]
    try:
        wait_for_port(dashboard)
        nodes.append(command("start", "--block", f"--address=127.0.0.1:{port}", "--num-cpus=2"))
        job = command(
            *["job", "submit", f"--address=http://127.0.0.1:{dashboard}", "--"],
            *[sys.executable, str(Path("jobs/label.py").absolute()), str(write_config(tmp_path))],
            *overrides(source, out, "ray.max_engines=4"),
            stdout=subprocess.PIPE,
        )
        output, _ = job.communicate(timeout=240)
    finally:
        for node in reversed(nodes):
            os.killpg(node.pid, signal.SIGTERM)
            node.wait()
        shutil.rmtree(folder, ignore_errors=True)
    assert job.returncode == 0, output
    assert "num_problems=12" in output
    check_exact(out, 12)


def wait_for_port(port: int, timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.5)
    raise TimeoutError(f"nothing listens on port {port} after {timeout_s} s")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.slow
def test_killed_at_ten_random_moments_the_output_is_exact(tmp_path: Path) -> None:
    """SIGKILLs the driver or an actor; texts differ in every attempt."""
    rng = random.Random(os.environ.get("CHAOS_SEED", "0"))
    source, out = problems(tmp_path, NUM_KILLED), tmp_path / "out"
    scripted = "policy.scripted={repeatable: false, delay_s: 0.15}"
    command = [sys.executable, "-m", "mclabel", "label", str(write_config(tmp_path))]
    command += overrides(source, out, scripted, "ray.num_cpus=0.5")
    kills, progress = [], []
    while len(kills) < 10:
        driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while len(kills) < 10 and driver.poll() is None:
            actors = wait_for_actors(driver)
            time.sleep(rng.uniform(0.0, 3.0))
            if rng.random() < 0.4:
                driver.send_signal(signal.SIGKILL)
                kills.append("driver")
                driver.wait()
            else:
                rng.choice(actors).kill()
                kills.append("actor")
            progress.append(len(committed_blocks(Store(str(out)))) if out.is_dir() else 0)
        if driver.poll() is None:
            driver.send_signal(signal.SIGKILL)
        driver.wait()
        assert driver.returncode != 0, f"done after {len(kills)} kills: give it more problems"
    print(f"kills: {kills}; blocks committed at each: {progress}")
    assert {"driver", "actor"} <= set(kills)
    subprocess.run(command, check=True, timeout=240)
    check_exact(out, NUM_KILLED)


def write_config(folder: Path) -> Path:
    path = folder / "empty.yaml"
    path.write_text("seed: 1\n")
    return path


def wait_for_actors(driver: subprocess.Popen[bytes]) -> list[psutil.Process]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and driver.poll() is None:
        if actors := label_actors(driver.pid):
            return actors
        time.sleep(0.1)
    raise TimeoutError("the driver started no actors")


def label_actors(driver: int) -> list[psutil.Process]:
    """Processes of the driver's label actors."""
    try:
        children = psutil.Process(driver).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    found = []
    for child in children:
        try:
            if "LabelActor" in " ".join(child.cmdline()):
                found.append(child)
        except psutil.Error:
            continue
    return found
