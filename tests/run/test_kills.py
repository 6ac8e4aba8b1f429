"""Jobs that are killed, stopped or run twice keep written results, and write each result once.

Each kind of job has one such test in the plain run, in its own folder. The test of random faults
has a cluster of two nodes; the benchmark's smoke size covers S3 (seed 0).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO

import psutil
import pytest

from mclabel.labeling.journal import parse_entry
from mclabel.prm.scoring.score import PRM
from mclabel.run import job
from mclabel.run.job import STALE_S, DriverHeartbeat
from mclabel.run.shards.digest import add_digest
from mclabel.run.shards.journal import parse_journal
from mclabel.run.shards.labels import read_labels, read_rollouts
from mclabel.run.shards.store import Store
from mclabel.run.shards.trees import read_trees
from mclabel.run.verify.run import verify
from tests.benchmarks.chaos import run_seed
from tests.support.exactness import check_exact
from tests.support.forked import Forked
from tests.support.job_processes import HANGS_S, last_state, wait_until
from tests.support.labelled import train_tiny_prm
from tests.support.scripted_jobs import scripted_overrides, write_problems
from tests.support.searches import check_trees

COUNT = 6
"""Number of problems, which are all in one block."""
SLOW = "{kind: scripted, repeatable: false, delay_s: 0.3}"
"""An engine whose texts differ in every attempt."""
NUM_ROWS = 120
"""Number of solutions to be scored, in blocks of two."""
Content = dict[str, bytes]


def _label(kind: str, *more: str) -> Callable[[Path], list[str]]:
    def command(folder: Path) -> list[str]:
        keys = scripted_overrides(write_problems(folder, COUNT), folder / "out", *more)
        keys += [f"estimator.kind={kind}", "estimator.rollouts=12", f"block_problems={COUNT}"]
        keys += ["journal_s=0.1", f"policy.engine={SLOW}"]
        return ["label", "/dev/null", *keys]

    return command


def _search(folder: Path) -> list[str]:
    keys = [f"problems.source={write_problems(folder, COUNT)}", f"out={folder / 'out'}"]
    keys += ["scorer=constant", "search=beam", "search.n=4", "search.width=2"]
    keys += ["policy.max_tokens=1000", f"policy.engine={SLOW}", "ray.address=none"]
    return ["search", "/dev/null", *keys, f"block_problems={COUNT}", "journal_s=0.05"]


def _score(folder: Path) -> list[str]:
    prm, source = folder / "prm", folder / "in.jsonl"
    if not source.exists():
        train_tiny_prm(folder)
        lines = [f"{n} + 1 = {n + 1}\nThe answer is {n + 1}." for n in range(NUM_ROWS)]
        rows = [{"number": n, "problem": "How many?", "solution": s} for n, s in enumerate(lines)]
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ["score", str(prm), str(source), "-o", str(folder / "out.jsonl"), "block_solutions=2"]


def _check_labels(folder: Path, kept: Content, *, all_rollouts: bool = False) -> None:
    """Check that no completion was written twice, and that labels use the journaled completions."""
    store = Store(str(folder / "out"))
    check_exact(folder / "out", COUNT)
    entries = list(
        chain.from_iterable(parse_journal(journal, parse_entry) for journal in kept.values())
    )
    assert len({entry.key for entry in entries}) == len(entries)
    solutions = [row.solution for row in read_labels(store)]
    rollouts = list(read_rollouts(store))
    assert len({(r.completer, r.prefix_id, r.index) for r in rollouts}) == len(rollouts)
    for entry in entries:
        if entry.key[0] == "solution":
            assert entry.content.solution in solutions
        elif all_rollouts:
            assert entry.content.rollout.text in {rollout.text for rollout in rollouts}
    assert last_state(folder / "out")["num_replayed"] > 0


def _check_trees(folder: Path, kept: Content) -> None:
    trees = list(read_trees(Store(str(folder / "out"))))
    check_trees(trees, [f"p{i}" for i in range(COUNT)])
    assert sum(tree.cost.num_replayed for tree in trees) > 0


def _check_scores(folder: Path, kept: Content) -> None:
    scored = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert [row["number"] for row in scored] == list(range(NUM_ROWS))
    problems, solutions = ([row[name] for row in scored] for name in ("problem", "solution"))
    for row, scores in zip(
        scored, PRM.load(folder / "prm").score(problems, solutions), strict=True
    ):
        assert row["scores"] == pytest.approx(scores, abs=1e-5)


@dataclass(frozen=True)
class Job:
    """A command, its working folder, and the check of its final output."""

    command: Callable[[Path], list[str]]
    check: Callable[[Path, Content], None]
    folder: str = "out"


OTHER = f"completers=[{{model: policy, cost: 1}}, {{model: other, cost: 2, engine: {SLOW}}}]"
HERE, RAY = "ray.address=none", ("ray.address=local", "ray.max_engines=1")
JOBS = {
    "fixed by two models": Job(
        _label("fixed", HERE, OTHER),
        lambda folder, kept: _check_labels(folder, kept, all_rollouts=True),
    ),
    "bisect": Job(_label("bisect", HERE), _check_labels),
    "posterior by two models": Job(_label("posterior", HERE, OTHER), _check_labels),
    "tree by two models": Job(_label("tree", HERE, OTHER), _check_labels),
    "fixed on Ray": Job(_label("fixed", *RAY), _check_labels),
    "search": Job(_search, _check_trees),
    "score": Job(_score, _check_scores, "out.jsonl.partial"),
}


def read_written_files(out: Path) -> Content:
    """Return the contents of the journals and shards, none of which may be lost."""
    paths = chain(out.glob("journals/*/*.gz"), out.glob("opinions/*.parquet"))
    return {path.name: path.read_bytes() for path in paths}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "number"),
    [
        *((name, signal.SIGKILL) for name in JOBS if "Ray" not in name),
        *((name, signal.SIGINT) for name in ("fixed by two models", "search", "score")),
        ("bisect", signal.SIGTERM),
        pytest.param("fixed on Ray", signal.SIGTERM, marks=pytest.mark.ray),
    ],
)
def test_what_was_written_is_kept_and_each_result_is_there_once(
    name: str, number: signal.Signals, tmp_path: Path
) -> None:
    job = JOBS[name]
    command, out, kept = job.command(tmp_path), tmp_path / job.folder, Content()
    for _ in range(2):
        process, num_kept = Forked(*command), len(kept)
        wait_until(lambda: len(read_written_files(out)) > num_kept, process)  # noqa: B023
        started = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        output, _ = process.communicate(HANGS_S)
        if number == signal.SIGKILL:
            assert process.returncode == -number
        else:
            message = (
                f"stopped by {number.name}: completed work is kept. Run the same command again"
            )
            assert process.returncode == 128 + number and message in " ".join(output.split())
            assert "Traceback" not in output and not list(out.glob("drivers/*"))
            assert psutil.wait_procs(started, HANGS_S)[1] == []
        results = read_written_files(out)
        assert kept.items() <= results.items()
        kept = results
    assert not list(out.glob("labels/*")) and not (tmp_path / "out.jsonl").exists()
    last = Forked(*command)
    output, _ = last.communicate(HANGS_S)
    assert last.returncode == 0, output
    job.check(tmp_path, kept)
    if job.folder == "out":
        assert read_written_files(out) == {} and verify(Store(str(out))).is_sound


NUM_PROBLEMS = 24
SAYS = "another process runs a job on this output"


def start(folder: Path) -> Forked:
    """Start a driver whose sampled texts differ from those of every other driver."""
    more = [
        "ray.address=none",
        "journal_s=0.2",
        "policy.engine={kind: scripted, repeatable: false, delay_s: 0.1}",
    ]
    return Forked(
        "label", "/dev/null", *scripted_overrides(folder / "problems.jsonl", folder / "out", *more)
    )


def journals(out: Path) -> dict[Path, int]:
    """Return the size of each journal in bytes."""
    sizes = {}
    for path in out.glob("journals/*/*"):
        with contextlib.suppress(FileNotFoundError):  # the block was committed in between
            sizes[path] = path.stat().st_size
    return sizes


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_two_drivers_at_the_same_time(tmp_path: Path, killed: bool) -> None:
    write_problems(tmp_path, NUM_PROBLEMS)
    out = tmp_path / "out"
    first = start(tmp_path)
    wait_until(lambda: bool(journals(out)), first)
    first.send_signal(signal.SIGSTOP)  # otherwise the first driver may end before the second begins
    wait_until(lambda: psutil.Process(first.pid).status() == psutil.STATUS_STOPPED, first)
    of_first = journals(out)
    (sign,) = out.glob("drivers/*.json")
    second = start(tmp_path)

    def second_is_at_work() -> bool:
        os.utime(sign)  # the stopped first driver cannot refresh its file itself
        return bool(journals(out).keys() - of_first.keys())

    wait_until(second_is_at_work, first, second)
    assert len(list(out.glob("drivers/*.json"))) == 2
    first.send_signal(signal.SIGCONT)
    if killed:
        # both drivers are at work
        wait_until(lambda: not of_first.items() <= journals(out).items(), first)
        first.send_signal(signal.SIGKILL)
    outputs = [driver.communicate(timeout=HANGS_S)[0] for driver in (first, second)]
    assert SAYS not in outputs[0] and SAYS in outputs[1].replace("\n", " ")
    assert [first.returncode, second.returncode] == [-signal.SIGKILL if killed else 0, 0], outputs
    check_exact(out, NUM_PROBLEMS)
    third = start(tmp_path)
    output, _ = third.communicate(timeout=HANGS_S)
    assert third.returncode == 0 and SAYS not in output
    check_exact(out, NUM_PROBLEMS)
    assert not [p for folder in ("drivers", "journals") for p in (out / folder).rglob("*.*")]


def test_signs_of_the_dead_are_removed_and_those_of_the_living_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(str(tmp_path))
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    signs = {
        "here": {"process": os.getpid(), "node": os.uname().nodename, "since": "x"},
        "gone": {"process": gone.pid, "node": os.uname().nodename, "since": "x"},
        "away": {"process": gone.pid, "node": "another", "since": "x"},
        "stale": {"process": gone.pid, "node": "another", "since": "x"},
    }
    for name, content in signs.items():
        store.create(f"drivers/{name}.json", json.dumps(add_digest(content)).encode())
    store.create("drivers/torn.json", b"{")
    old = time.time() - STALE_S - 5
    os.utime(tmp_path / "drivers" / "stale.json", (old, old))
    with DriverHeartbeat(store) as sign, caplog.at_level(logging.WARNING):
        sign.warn_of_other_drivers()
        assert len(store.names("drivers")) == 3
    assert store.names("drivers") == ["drivers/away.json", "drivers/here.json"]
    living_driver = f"process {os.getpid()} on {os.uname().nodename}, since x"
    away = f"process {gone.pid} on another, since x"
    assert SAYS in caplog.text and f": {away}; {living_driver}. No result is lost" in caplog.text


def test_a_sign_that_is_being_written_ends_before_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, begun, written = Store(str(tmp_path)), threading.Event(), threading.Event()
    replace = Store.replace

    def slow(self: Store, name: str, content: IO[bytes]) -> None:
        begun.set()
        time.sleep(0.5)
        replace(self, name, content)
        written.set()

    monkeypatch.setattr(job, "BEAT_S", 0.01)
    monkeypatch.setattr(Store, "replace", slow)
    with DriverHeartbeat(store):
        assert begun.wait(HANGS_S)
    assert written.is_set() and store.names("drivers") == []
    assert "driver-sign" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.ray
def test_whatever_is_killed_the_output_is_exact() -> None:
    figures = run_seed(1, num_faults=2, undisturbed_s=10.0)
    assert figures.num_kills >= 2
    assert (figures.lost, figures.duplicated, figures.faults) == (0, 0, [])
