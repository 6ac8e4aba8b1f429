"""Measure the latency, the crash safety and the statistics of the annotation page.

    python -m tests.benchmarks.annotate [--smoke | --quick]

The page serves a fifth of a run of 100,000 solutions (`--quick`: 5,000) to 20 annotators at once
over HTTP. Then the server is killed at 50 random moments (`--quick`: 10) while all annotators
submit, repeat and reorder events. The last line is JSON:

- `p99_ms`: 99th percentile of the latency of each action, in ms.
- `lost` and `doubled`: acknowledged events that are missing from the disk, or recorded twice.
- `rate_error`: largest error of a false-alarm or detection rate that `mclabel combine` estimates
  for an annotator.
- `coverage`: coverage of the 95% interval for the weighted share of right first errors.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mclabel.annotate.events import last_opinions
from mclabel.annotate.items import Item, Settings, draw_items
from mclabel.annotate.storage import EVENTS, read_folder
from mclabel.core.records import LabeledSolution, Outcome
from mclabel.evaluate.labels.quality import measure_label_quality
from mclabel.judge.consensus.models import FirstErrorJudgeModel
from mclabel.judge.consensus.posterior import fuse_judges_with_rollouts
from mclabel.judge.consensus.sources import make_judge_model, read_people_sources
from tests.benchmarks.figures import finish
from tests.benchmarks.sizes import SizedParser
from tests.support.annotated import AnnotateProcess
from tests.support.annotators import first_errors, names, rollouts, write_labelled
from tests.support.shown import solution, write_run

ACCURACIES = (0.6, 0.75, 0.9)
BLOCK = 2_000
SETTINGS = Settings(id="b", run="run", run_id="r")


def main() -> None:
    size = SizedParser(__doc__).read().size
    people = [f"p{number:02d}" for number in range(size.pick(smoke=3, quick=20, full=20))]
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        count = size.pick(smoke=100, quick=5_000, full=100_000)
        large = [_write_labelled_run(Path(scratch) / "large", count), "--sample", str(count // 5)]
        each = size.pick(smoke=2, quick=40, full=100)
        figures["p99_ms"] = _measure_latency(large, Path(scratch) / "pace", people, each)
        small = _write_labelled_run(Path(scratch) / "small", 200)
        kills = size.pick(smoke=1, quick=10, full=50)
        figures |= _count_event_losses(small, Path(scratch) / "killed", people, kills)
        count = size.pick(smoke=100, quick=2_000, full=4_000)
        figures["rate_error"] = _rate_error(Path(scratch) / "said", count)
    draws = size.pick(smoke=5, quick=200, full=1_000)
    figures["coverage"] = _coverage(draws, size.pick(smoke=300, quick=10_000, full=10_000))
    finish(figures)


def _rows(count: int) -> list[LabeledSolution]:
    """Return solutions of several lengths. About 40% of them are wrong."""
    rng = random.Random(0)
    rows = []
    for number in range(count):
        num_steps = rng.choice((2, 3, 5, 8, 14))
        error = rng.randrange(num_steps) if rng.random() < 0.4 else num_steps
        good = [4 if step < error else 0 for step in range(num_steps)]
        outcome = Outcome.WRONG if error < num_steps else Outcome.RIGHT
        steps = [f"Step {step} of {number}: we add {step}.\n" for step in range(num_steps)]
        rows.append(solution(number, steps, good, outcome=outcome, problem=f"Problem {number}"))
    return rows


def _write_labelled_run(folder: Path, count: int) -> str:
    rows = _rows(count)
    for number, start in enumerate(range(0, count, BLOCK)):
        write_run(folder, rows[start : start + BLOCK], None, f"{number:016x}")
    return str(folder)


class _Annotator:
    """The browser of one annotator, with one HTTP connection."""

    def __init__(self, page: AnnotateProcess, person: str) -> None:
        self.person = person
        self._head = {"cookie": page.cookie(person), "origin": page.origin}
        self._connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=60)

    def ask(self, method: str, path: str, content: object = None) -> tuple[int, Any, float]:
        """Send a request; return the status, the content and the latency in ms of its response."""
        body = None if content is None else json.dumps(content)
        began = time.perf_counter()
        head = {**self._head, "content-type": "application/json"}
        self._connection.request(method, path, body, head)
        response = self._connection.getresponse()
        text = response.read()
        spent = 1000 * (time.perf_counter() - began)
        return response.status, json.loads(text) if text[:1] in b"{[" else None, spent


def _make_event(person: str, item: Any, revision: int, key: str) -> dict[str, Any]:
    return {
        "id": f"{key}-{person}-{item['id']}-{revision:04d}", "person": person,
        "solution": item["id"], "digest": item["digest"], "ratings": ["good"] * len(item["steps"]),
        "finish": "solution", "note": "", "ms": 1000, "at": 1_700_000_000_000 + revision,
        "revision": revision,
    }  # fmt: skip


def _measure_latency(run: list[str], out: Path, people: list[str], each: int) -> dict[str, float]:
    spent: dict[str, list[float]] = {"item": [], "submit": [], "labels": []}
    with AnnotateProcess(*run, "-o", str(out), "--people", ",".join(people)) as page:

        def work(person: str) -> None:
            browser = _Annotator(page, person)
            items = browser.ask("GET", "/api/state")[1]["items"]
            for one in items[:each]:
                _, item, took = browser.ask("GET", f"/api/item?id={one}")
                spent["item"].append(took)
                status, _, took = browser.ask(
                    "POST", "/api/events", _make_event(person, item, 1, "pace")
                )
                assert status == 200
                spent["submit"].append(took)
                spent["labels"].append(browser.ask("GET", f"/api/labels?id={one}")[2])

        with ThreadPoolExecutor(len(people)) as pool:
            list(pool.map(work, people))
    return {name: round(float(np.quantile(took, 0.99)), 1) for name, took in spent.items()}


def _count_event_losses(run: str, out: Path, people: list[str], kills: int) -> dict[str, int]:
    """Kill the server while all annotators submit, repeat and reorder events; count the damage."""
    rng = random.Random(1)
    acknowledged: dict[str, tuple[str, str, int]] = {}
    begun = (run, "-o", str(out), "--people", ",".join(people), "--sample", "200")
    for number in range(kills):
        with AnnotateProcess(*begun) as page:
            items = read_folder(out).items
            ready = threading.Barrier(len(people) + 1)

            with ThreadPoolExecutor(len(people)) as pool:
                done = [
                    pool.submit(_submit, page, person, number, items, ready, acknowledged)
                    for person in people
                ]
                ready.wait()
                time.sleep(rng.uniform(0.01, 0.4))
                os.kill(page.process.pid, signal.SIGKILL)
                page.process.wait()
                for one in done:
                    one.result()
    with AnnotateProcess(*begun):
        pass  # starting the server removes a half-written last line
    lines = (out / EVENTS).read_text().splitlines()
    written = Counter(json.loads(line)["id"] for line in lines)
    last = last_opinions(read_folder(out).events)
    lost = sum(one not in written for one in acknowledged)
    lost += sum(last[who, what].revision < n for who, what, n in acknowledged.values())
    print(f"{len(acknowledged):,} events acknowledged over {kills} kills", flush=True)
    return {"lost": lost, "doubled": sum(count > 1 for count in written.values())}


def _submit(
    page: AnnotateProcess, person: str, number: int, items: Sequence[Item],
    ready: threading.Barrier, acknowledged: dict[str, tuple[str, str, int]],
) -> None:  # fmt: skip
    """Submit, repeat and reorder events until the server is killed; record acknowledged events."""
    chance = random.Random(f"{number} {person}")
    browser = _Annotator(page, person)
    own = [vars(item) for item in items if person in item.people]
    done = browser.ask("GET", "/api/state")[1]["done"]
    known = {name: opinion["revision"] for name, opinion in done.items()}
    events = [
        _make_event(person, one, known.get(one["id"], 0) + r, f"k{number}")
        for one in own
        for r in (1, 2, 3)
    ]
    events += chance.sample(events, len(events) // 2)
    chance.shuffle(events)
    # the server refuses a revision that arrives before an earlier one, and records one of two
    # repeats
    events.sort(key=lambda one: int(one["revision"]) + chance.randrange(2))
    ready.wait()
    try:
        for one in events:
            if browser.ask("POST", "/api/events", one)[0] == 200:
                acknowledged[one["id"]] = (person, one["solution"], one["revision"])
    except (OSError, http.client.HTTPException):
        return  # the server was killed


def _rate_error(folder: Path, count: int) -> float:
    """Return the largest error of the annotators' rates that are estimated without the truth."""
    rng = np.random.default_rng(3)
    errors, num_steps = first_errors(rng, count)
    named = {f"p{right}": names(rng, right, errors, num_steps) for right in ACCURACIES}
    ids = write_labelled(folder, num_steps, named)
    models = {s.name: make_judge_model(s, ids, num_steps) for s in read_people_sources(str(folder))}
    fused = fuse_judges_with_rollouts(rollouts(rng, errors, num_steps), num_steps, models)
    truth = np.eye(int(num_steps.max()) + 1)[errors]
    wrong = [0.0]
    for name, model in models.items():
        assert isinstance(model, FirstErrorJudgeModel)
        true, learned = model.fit(truth).rates(), fused.models[name].rates()
        wrong += [abs(learned[what] - true[what]) for what in ("false_alarm", "detection")]
    return round(max(wrong), 4)


def _coverage(count: int, num_rows: int) -> float:
    """Measure how often the interval of the weighted share contains the whole run's share."""
    rows = _rows(num_rows)
    rng = random.Random(4)
    truth = {}
    for row in rows:  # labels are more often wrong if they name an error or the solution is long
        right = rng.random() < (0.9 if row.first_error is None else 0.7) - 0.02 * len(row.steps)
        truth[row.solution.id] = row.first_error if right else rng.randrange(len(row.steps))
    by_id = {row.solution.id: row for row in rows}
    whole = np.mean([truth[row.solution.id] == row.first_error for row in rows])
    held = 0
    for seed in range(count):
        items = draw_items(lambda: rows, replace(SETTINGS, seed=seed))
        weights = {item.id: 1 / (item.probability or 1) for item in items}
        quality = measure_label_quality(
            [by_id[item.id] for item in items],
            lambda row: truth[row.solution.id],
            weight=lambda row, weights=weights: weights[row.solution.id],  # type: ignore[misc]
            seed=seed,
        )
        low, high = quality.first_error_accuracy.low, quality.first_error_accuracy.high
        held += low is not None and high is not None and bool(low <= whole <= high)
    return round(held / count, 4)


if __name__ == "__main__":
    main()
