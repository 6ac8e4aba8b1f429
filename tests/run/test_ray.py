"""The job on a real Ray: the same rows as in-process, and exact after kills."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
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
from mclabel.run.shards.labels import read_labels, read_rollouts
from mclabel.run.shards.store import Store
from mclabel.run.shards.trees import read_trees
from mclabel.run.task import Block
from mclabel.run.verify.run import verify
from mclabel.run.worker import Worker
from mclabel.search.config import SearchConfig
from tests.support.exactness import check_exact
from tests.support.scripted_jobs import scripted_overrides, write_config, write_problems
from tests.support.searches import check_trees

pytestmark = pytest.mark.ray

TWO = "ray.max_engines=2"


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("fixed", ()),
        ("bisect", ()),
        (
            "fixed",
            (
                "completers=[{model: policy, cost: 1}, {model: x, cost: 2, engine: scripted}]",
                "completer_turns=true",
            ),
        ),
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
        jobs.label(load_config(LabelConfig, None, changes), lambda state: None)
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


def test_a_search_whose_engine_is_killed_searches_every_problem_once(tmp_path: Path) -> None:
    source, out = write_problems(tmp_path, 12), tmp_path / "out"
    more = ["ray.address=local", "journal_s=0.05"]
    more += ["policy.engine={kind: scripted, repeatable: false, delay_s: 0.3}"]
    config = tmp_path / "search.yaml"
    config.write_text("seed: 1\n")
    driver = subprocess.Popen(
        [sys.executable, "-m", "mclabel", "search", str(config), *_search(source, out, *more)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    actor = wait_for_actors(driver)[0]
    while not any((out / "journals").rglob("*.gz")):
        assert driver.poll() is None
        time.sleep(0.05)
    actor.kill()
    output, _ = driver.communicate(timeout=240)
    assert driver.returncode == 0, output
    store = Store(str(out))
    check_trees(read_trees(store), [f"p{i}" for i in range(12)])
    assert verify(store).is_sound


def test_an_engine_that_cannot_load_stops_the_job_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "llama"}')
    changes = [f"out={tmp_path / 'out'}", "problems.limit=1", f"policy.model={tmp_path / 'model'}"]
    with pytest.raises(EngineError, match="its tokenizer cannot be loaded"):
        jobs.label(load_config(LabelConfig, None, changes), lambda state: None)


@pytest.mark.parametrize(
    ("make_policy", "reason"),
    [(partial(os._exit, 3), "ended without a word"), (partial(int, "no weights"), "'no weights'")],
)
def test_three_failed_loads_stop_the_job(
    tmp_path: Path, make_policy: Callable[[], Policy], reason: str
) -> None:
    config = LabelConfig(out=str(tmp_path))
    task = LabelTask(make_policy=make_policy, settings=config, provenance={})
    make_worker = partial(Worker, task, out=str(tmp_path))
    fleet = RayFleet(make_worker, RayConfig(address="local", max_engines=1))
    book = LeaseBook([Block(id="b", items=(), priority=0)], num_blocks=1)
    with pytest.raises(EngineError, match="failed to load 3 times") as caught:
        list(fleet.run(book, lambda progress: None))
    assert reason in str(caught.value) and "session_latest/logs" in str(caught.value)


def test_an_engine_that_is_asked_to_go_leaves_its_journal(tmp_path: Path) -> None:
    source, out = write_problems(tmp_path, 8), tmp_path / "out"
    more = ["ray.max_engines=1", "journal_s=1000", "block_problems=8"]
    more += ["policy.engine={kind: scripted, repeatable: false, delay_s: 1.0}"]
    driver = subprocess.Popen(
        [
            *[sys.executable, "-m", "mclabel", "label", str(write_config(tmp_path))],
            *scripted_overrides(source, out, *more),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    (actor,) = wait_for_actors(driver)
    while not (out / "progress.jsonl").is_file() or last_state(out)["num_completions"] == 0:
        assert driver.poll() is None
        time.sleep(0.05)
    actor.terminate()
    actor.wait(timeout=60)
    assert list((out / "journals").rglob("*.gz"))
    output, _ = driver.communicate(timeout=240)
    assert driver.returncode == 0, output
    check_exact(out, 8)
    assert last_state(out)["num_replayed"] > 0 and last_state(out)["num_failures"] == 1


def last_state(out: Path) -> dict[str, int]:
    state: dict[str, int] = json.loads((out / "progress.jsonl").read_text().splitlines()[-1])
    return state


def wait_for_actors(driver: subprocess.Popen[bytes]) -> list[psutil.Process]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and driver.poll() is None:
        if actors := worker_actors(driver.pid):
            return actors
        time.sleep(0.1)
    raise TimeoutError("the driver started no actors")


def worker_actors(driver: int) -> list[psutil.Process]:
    """Processes of the driver's label actors."""
    try:
        children = psutil.Process(driver).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    found = []
    for child in children:
        try:
            if "WorkerActor" in " ".join(child.cmdline()):
                found.append(child)
        except psutil.Error:
            continue
    return found
