"""Scoring as a task of work: every solution once, whatever is killed, and nothing scored twice."""

from __future__ import annotations

import json
import random
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mclabel.cli import main
from mclabel.core.config.load import load_config
from mclabel.core.errors import DamagedFile, ShardError
from mclabel.engines.devices import ONE_CPU
from mclabel.judge.base import make_judge
from mclabel.judge.job import ScoreConfig
from mclabel.judge.opinions import read_judged_input
from mclabel.judge.score import score, score_lines
from mclabel.judge.task import JudgeTask
from mclabel.prm.scoring.score import PRM
from mclabel.run.blocks import plan_blocks
from mclabel.run.job import run_job
from mclabel.run.run import make_fleet
from mclabel.run.settings import RayConfig
from mclabel.run.shards.store import Store
from mclabel.run.worker import Worker
from tests.support.forked import Forked
from tests.support.job_processes import last_state, worker_actors
from tests.support.labelled import arith_rows, train_tiny_prm, write_run
from tests.support.poison_scorers import POISON, DyingJudge

NUM_ROWS = 120


@pytest.fixture(scope="module")
def prm(tmp_path_factory: pytest.TempPathFactory) -> str:
    return train_tiny_prm(tmp_path_factory.mktemp("prm"))


def row(number: int, text: str = "") -> dict[str, Any]:
    lines = f"{number} + 1 = {number + 1}{text}\nThe answer is {number + 1}."
    return {"number": number, "problem": f"A boy has {number} apples.", "solution": lines}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path


def start(prm: str, source: Path, out: Path, *more: str) -> Forked:
    """A job in small blocks."""
    return Forked("score", prm, source, "-o", out, "block_solutions=2", *more)


def shards(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run / "opinions").glob("*.parquet")}


def wait_for_shards(run: Path, count: int, job: Forked) -> None:
    deadline = time.monotonic() + 240
    while len(list((run / "opinions").glob("*.parquet"))) < count:
        assert job.poll() is None, job.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.005)


def check_scores(prm: str, found: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    """Every row once and in order, with the scores that the PRM gives it."""
    plain = [{k: v for k, v in one.items() if k in rows[0]} for one in found]
    assert plain == rows
    expected = PRM.load(prm).score([r["problem"] for r in rows], [r["solution"] for r in rows])
    for one, scores in zip(found, expected, strict=True):
        assert one["scores"] == pytest.approx(scores, abs=1e-5)
        assert one["last"] == one["scores"][-1] and one["min"] == min(one["scores"])


def scored(run: Path) -> list[dict[str, Any]]:
    """The rows of a run's shards, in the order of the input."""
    return [json.loads(line) for line in score_lines(Store(str(run)))]


@pytest.mark.slow
def test_killed_at_random_moments_every_row_is_scored_once(prm: str, tmp_path: Path) -> None:
    rng, rows = random.Random(0), [row(i) for i in range(NUM_ROWS)]
    source, run = write(tmp_path / "in.jsonl", rows), tmp_path / "run"
    kept: dict[str, bytes] = {}
    for _ in range(2):
        job = start(prm, source, run)
        wait_for_shards(run, len(kept) + rng.randint(1, 12), job)
        job.kill()
        job.communicate()
        now = shards(run)
        assert kept.items() <= now.items()
        kept = now
    assert len(kept) < NUM_ROWS // 2
    job = start(prm, source, run)
    output, _ = job.communicate(timeout=240)
    assert job.returncode == 0, output
    assert f"{NUM_ROWS} solutions scored, written to {run}" in " ".join(output.split())
    assert kept.items() <= shards(run).items() and len(shards(run)) == NUM_ROWS // 2
    check_scores(prm, scored(run), rows)
    assert not [path for path in (run / ".partial").glob("*")]


@pytest.mark.slow
def test_a_file_is_whole_or_not_there_and_ctrl_c_keeps_what_is_done(
    prm: str, tmp_path: Path
) -> None:
    rows = [row(i) for i in range(NUM_ROWS)]
    source, out = write(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
    partial_run = tmp_path / "out.jsonl.partial"
    job = start(prm, source, out)
    wait_for_shards(partial_run, 3, job)
    job.send_signal(signal.SIGINT)
    output, _ = job.communicate(timeout=60)
    assert job.returncode == 130, output
    assert "Run the same command again" in " ".join(output.split()) and not out.exists()
    kept = len(shards(partial_run))
    assert 3 <= kept < NUM_ROWS // 2
    found = []
    config = ["block_solutions=2", f"prm={prm}", f"solutions={source}", f"out={out}"]
    report = score(load_config(ScoreConfig, None, config), found.append)
    assert report.job.num_blocks_resumed >= kept
    assert report.num_scored == NUM_ROWS and not partial_run.exists()
    assert found[-1].num_items_done == found[-1].num_items == NUM_ROWS
    assert found[-1].counters["num_steps"] == 2 * report.job.num_items
    check_scores(prm, [json.loads(line) for line in out.read_text().splitlines()], rows)


def score_into(prm: str, source: Path, out: Path, *more: str) -> Result:
    arguments = ["score", prm, str(source), "-o", str(out), "block_solutions=4", *more]
    return CliRunner(env={"COLUMNS": "300"}).invoke(main, arguments)


def test_a_budget_stops_in_order_and_a_larger_one_goes_on(prm: str, tmp_path: Path) -> None:
    rows = [row(i) for i in range(40)]
    source, out = write(tmp_path / "in.jsonl", rows), tmp_path / "run"
    first = score_into(prm, source, out, "budget.max_tokens=1", "block_solutions=1")
    spent = json.loads((out / "spent.json").read_text())["num_tokens"]
    if first.exit_code:  # a small job may end before its first state
        assert first.exit_code == 3 and "stopped by budget.max_tokens=1:" in first.output
    again = score_into(prm, source, out, "budget.max_tokens=1000000")
    assert again.exit_code == 0, again.output
    assert json.loads((out / "spent.json").read_text())["num_tokens"] >= spent
    check_scores(prm, scored(out), rows)
    assert last_state(out)["num_solutions_done"] == 40


def test_a_grown_input_costs_its_new_rows_and_a_changed_one_is_refused(
    prm: str, tmp_path: Path
) -> None:
    rows = [row(i) for i in range(12)]
    source, out = write(tmp_path / "in.jsonl", rows[:8]), tmp_path / "run"
    assert score_into(prm, source, out).exit_code == 0
    before = shards(out)
    write(source, rows)
    assert score_into(prm, source, out).exit_code == 0
    assert before.items() < shards(out).items() and len(shards(out)) == 3
    rows[2] = row(2, " = 4 - 1")
    write(source, rows)
    refused = score_into(prm, source, out)
    assert refused.exit_code == 2
    assert "was begun with other solutions" in refused.output and "1 changed" in refused.output
    accepted = score_into(prm, source, out, "--accept-changes")
    assert accepted.exit_code == 0, accepted.output
    check_scores(prm, scored(out), rows)
    other = score_into(prm, source, out, "--accept-changes", "--format", "trl")
    assert other.exit_code == 2 and "format: 'mclabel' there, 'trl' here" in other.output


def test_the_solutions_of_a_run_are_scored(prm: str, tmp_path: Path) -> None:
    labeled = arith_rows(6)
    run = write_run(tmp_path / "labels", labeled)
    result = score_into(prm, Path(run), tmp_path / "out.jsonl")
    assert result.exit_code == 0, result.output
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert {one["id"] for one in found} == {one.solution.id for one in labeled}
    by_id = {one.solution.id: one for one in labeled}
    for one in found:
        steps = [step.text for step in by_id[one["id"]].solution.steps]
        assert one["steps"] == steps and len(one["scores"]) == len(steps)
        assert one["problem_id"] == by_id[one["id"]].problem.id


def test_damaged_shards_are_named(prm: str, tmp_path: Path) -> None:
    source, out = write(tmp_path / "in.jsonl", [row(i) for i in range(8)]), tmp_path / "run"
    assert score_into(prm, source, out).exit_code == 0
    first, second = sorted((out / "opinions").iterdir())
    whole = first.read_bytes()
    first.write_bytes(whole[:-9])
    again = score_into(prm, source, out)
    assert again.exit_code == 2 and f"{first.name}: damaged: it is cut off" in again.output
    assert "which judges its block again" in again.output
    first.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    with pytest.raises(DamagedFile, match=f"{first.name}: damaged"):
        scored(out)
    first.unlink()
    assert score_into(prm, source, out).exit_code == 0
    assert first.read_bytes() == whole or len(scored(out)) == 8
    assert second.exists()


def test_solutions_that_kill_the_model_are_set_aside(prm: str, tmp_path: Path) -> None:
    """A job of blocks of four."""
    poison = (3, 9)
    rows = [row(i, POISON if i in poison else "") for i in range(16)]
    source, run = write(tmp_path / "in.jsonl", rows), tmp_path / "run"
    store = Store(str(run), create=True)
    settings = DyingJudge.Settings(prm=prm, threshold=0.5)
    make = partial(make_judge, settings, seed=0)
    task = JudgeTask(make=make, source=str(source), provenance={})
    solutions = read_judged_input(str(source))
    blocks = plan_blocks(store, solutions, task.outputs, identity={}, block_items=4)
    ray = RayConfig(address="none")
    fleet = make_fleet(ray, ONE_CPU, partial(Worker, task, out=store.location))
    report = run_job(blocks, task.outputs, fleet, store)
    assert (report.num_rejected, report.counts["num_judged"]) == (len(poison), 16 - len(poison))
    assert [one["number"] for one in scored(run)] == [i for i in range(16) if i not in poison]
    rejects = [json.loads(line) for line in (run / "rejects.jsonl").read_text().splitlines()]
    assert sorted(one["row"] for one in rejects) == [i + 1 for i in poison]
    assert {one["reason"] for one in rejects} == {"kills_engine"}


@pytest.mark.ray
def test_an_actor_that_is_killed_costs_no_row(
    prm: str, tmp_path: Path, shared_cluster: str
) -> None:
    rows = [row(i) for i in range(400)]
    source, run = write(tmp_path / "in.jsonl", rows), tmp_path / "run"
    job = start(prm, source, run, f"ray.address={shared_cluster}", "ray.max_engines=1")
    wait_for_shards(run, 5, job)
    (actor,) = worker_actors()
    actor.kill()
    output, _ = job.communicate(timeout=400)
    assert job.returncode == 0, output
    check_scores(prm, scored(run), rows)
    assert last_state(run)["num_failures"] == 1


def test_a_folder_of_labels_is_no_place_for_scores(prm: str, tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", [row(0)])
    assert score_into(prm, source, tmp_path / "run").exit_code == 0
    with pytest.raises(ShardError, match="holds opinions, not labels"):
        read_judged_input(str(tmp_path / "run"))
