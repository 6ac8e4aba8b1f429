"""Jobs on a real Ray give the same rows as jobs in-process, and exact results after kills."""

from __future__ import annotations

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
from mclabel.run.worker import Worker
from mclabel.search.config import SearchConfig
from tests.support.exactness import check_exact
from tests.support.forked import Forked
from tests.support.job_processes import (
    last_state,
    wait_for_work,
    worker_actors,
)
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
    while not (started := [one for one in psutil.Process(job.pid).children(recursive=True)
                           if one.name() == "raylet"]):  # fmt: skip
        assert job.poll() is None
        time.sleep(0.01)
    started[0].suspend()
    output, _ = job.communicate(240)
    assert job.returncode == 2, output
    said = " ".join(output.split())
    assert "Ray did not start" in said and "without Ray, set ray.address=none" in said
    assert "Traceback" not in output
    psutil.wait_procs(started, 60)
    assert not started[0].is_running()


def test_a_job_without_room_says_what_the_nodes_have(tmp_path: Path, shared_cluster: str) -> None:
    source = write_problems(tmp_path, 1)
    more = [f"ray.address={shared_cluster}", "ray.num_gpus=1", "ray.wait_s=0.1"]
    changes = scripted_overrides(source, tmp_path / "out", *more)
    reason = r"room for 0 of ray.min_engines=1 engines after ray.wait_s=0.1.*\d+ CPUs and 0 GPUs"
    with pytest.raises(EngineError, match=reason):
        run_label_job(changes)


OWN = "tests.support.own_engine:ConstantEngine"
ENDED = (
    f"ended without an error message.*It ran .*{OWN}.* from outside mclabel, "
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
    output, _ = driver.communicate(timeout=240)
    assert driver.returncode == 0, output
    check_exact(out, 8)
    assert last_state(out)["num_replayed"] > 0 and last_state(out)["num_failures"] == 1
