"""Label under random faults, resume, and check that the output is exact.

    python -m tests.benchmarks.chaos [--smoke | --quick] [--seeds N] [--first SEED]

Each seed labels one list of problems under faults and ends with an undisturbed run of the same
command. The seed chooses one of `chaos_world.WORLDS`: one process or a Ray cluster of two worker
nodes; a folder, a small disk or S3 (moto's server); the bundled policy or the scripted policy,
whose texts differ in every attempt. The faults are: SIGKILL of the driver, of an actor or of a
whole node; SIGTERM; a node that drains and is then killed; writes that fail half-way; a full disk;
S3 that refuses requests, drops them, loses its answers, or stalls. CI runs two seeds: the smoke
size runs seed 0, and `tests/run/test_kills.py` runs seed 1. `--seeds 50` takes about an hour on
two cores and is meant for the night.

After each seed, every solution of the problem list must be in the output exactly once (`lost`,
`duplicated`). The other checks count as `mismatched`: the counts of each label are those of its own
rollouts file; golds and metadata are those of the problems; every shard has the same configuration
and versions; and no journal, partial file, rollouts file of a lost attempt or sign of a running
driver is left.

The cost of a fault is the extra time of all runs of the command over an undisturbed run, times the
number of engines, divided by the number of faults. Each run counts from its start to its end. So
the cost includes repeated sampling, idle engines, and the start of Python, Ray and the engines
after each fault. It excludes the time until somebody runs the command again. Journals are flushed
every 2 s here. At the default of 60 s a SIGKILL costs 29 s more on average, which is added for each
SIGKILL. The last line is JSON.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from mclabel.core.config.load import load_config
from mclabel.core.records import Outcome
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.inputs import load_inputs
from mclabel.run.shards.durable import PARTIAL
from mclabel.run.shards.labels import iter_label_tables
from mclabel.run.shards.shard import read_shard
from mclabel.run.shards.store import Store
from mclabel.run.worker import JOURNAL_S
from tests.benchmarks.chaos_world import FLUSH_S, WORLDS, World, open_world
from tests.benchmarks.figures import finish
from tests.benchmarks.sizes import SizedParser

Counted = dict[tuple[str, str | None], Counter[str]]
"""Numbers of rollouts by outcome, for each pair of a prefix id and a completer. The completer None
stands for all completers.
"""
MAX_OUTPUTS = 10
NUM_FAULTS = 4
"""Number of faults in a seed."""
MAX_RUN_S = 300.0


@dataclass(kw_only=True)
class Figures:
    """Results of one seed."""

    kills: Counter[str] = field(default_factory=Counter)
    """Numbers of faults by kind."""
    lost: int = 0
    duplicated: int = 0
    mismatched: int = 0
    faults: list[str] = field(default_factory=list)
    """Descriptions of all mismatches."""
    cost_s: float = 0.0
    """Cost of all faults, in seconds of one engine."""

    @property
    def num_kills(self) -> int:
        return sum(self.kills.values())


def main() -> None:
    parser = SizedParser(__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    args = parser.read()
    num_seeds = args.size.pick(smoke=1, quick=3, full=args.seeds)
    num_faults = args.size.pick(smoke=1, quick=NUM_FAULTS, full=NUM_FAULTS)
    # An assumed duration saves the undisturbed run, which only scales the moments and the cost.
    undisturbed_s = args.size.pick(smoke=20.0, quick=None, full=None)
    results = []
    for seed in range(args.first, args.first + num_seeds):
        figures = run_seed(seed, num_faults=num_faults, undisturbed_s=undisturbed_s)
        results.append(figures)
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(figures.kills.items()))
        wrong = "; ".join(figures.faults[:5]) or "nothing"
        if figures.lost or figures.duplicated:
            wrong += f"; {figures.lost} solutions lost, {figures.duplicated} duplicated"
        mean = f"{figures.cost_s / max(1, figures.num_kills):.0f} s"
        world = WORLDS[seed % len(WORLDS)]
        print(f"seed {seed}, {world}: {kinds}; wrong: {wrong}; a fault costs {mean}", flush=True)
    kills = sum(seed_figures.num_kills for seed_figures in results)
    result = {
        "kills": kills,
        "lost": sum(seed_figures.lost for seed_figures in results),
        "duplicated": sum(seed_figures.duplicated for seed_figures in results),
        "mismatched": sum(seed_figures.mismatched for seed_figures in results),
        "mean_cost_s": round(
            sum(seed_figures.cost_s for seed_figures in results) / max(1, kills), 1
        ),
        "seeds": len(results),
        "by_kind": dict(sum((seed_figures.kills for seed_figures in results), Counter[str]())),
    }
    finish(result)


def run_seed(seed: int, *, num_faults: int, undisturbed_s: float | None = None) -> Figures:
    """Label under random faults, resume, and check the output.

    Args:
        seed: random seed that chooses the world, the faults and their moments.
        num_faults: number of faults. If an output is complete earlier, another one is started.
        undisturbed_s: seconds of an undisturbed run; None measures one.
    """
    rng = random.Random(seed)
    figures = Figures()
    with open_world(WORLDS[seed % len(WORLDS)], rng) as world:
        if undisturbed_s is None:
            undisturbed_s = _run_to_end(world, "calibration")
        extra_s = 0.0
        for number in range(MAX_OUTPUTS):
            out = f"out{number}"
            spent_s = _run_under_faults(world, out, figures, num_faults, 0.2 * undisturbed_s)
            spent_s += _run_to_end(world, out)
            extra_s += max(0.0, spent_s - undisturbed_s)
            _check(world, out, figures)
            if figures.num_kills >= num_faults:
                break
        figures.cost_s = extra_s * world.num_engines
        hard = sum(count for kind, count in figures.kills.items() if kind.endswith("killed"))
        figures.cost_s += hard * (JOURNAL_S - FLUSH_S) / 2
    return figures


def _run_under_faults(
    world: World, out: str, figures: Figures, num_faults: int, longest_s: float
) -> float:
    """Repeat a command until it had enough faults or succeeded; return the seconds of all runs."""
    spent_s = 0.0
    while figures.num_kills < num_faults:
        started = time.monotonic()
        driver = world.start(out)
        while figures.num_kills < num_faults and world.wait_for_work(driver, out):
            time.sleep(world.rng.uniform(0.0, longest_s))
            if driver.poll() is not None:
                break
            figures.kills[world.break_something(driver)] += 1
        if figures.num_kills >= num_faults and driver.poll() is None:
            time.sleep(FLUSH_S)  # gives the last fault time to take effect
            world.heal()
        code = world.wait_for_end(driver)
        spent_s += time.monotonic() - started
        world.heal()
        if code == 0:
            break
    return spent_s


def _run_to_end(world: World, out: str) -> float:
    """Run the command without faults and return its seconds."""
    started = time.monotonic()
    driver = world.start(out)
    output, _ = driver.communicate(timeout=MAX_RUN_S)
    if driver.returncode != 0:
        raise RuntimeError(
            f"The run without faults ended with exit code {driver.returncode}: {output}"
        )
    return time.monotonic() - started


def _check(world: World, out: str, figures: Figures) -> None:
    """Compare the output with the expected rows and record the differences in `figures`."""
    config = load_config(LabelConfig, None, world.overrides(out))
    problems = {problem.id: problem for problem in load_inputs(config).problems}
    store = Store(config.out)
    wanted = Counter(
        (problem, index) for problem in problems for index in range(config.solutions.per_problem)
    )
    rows: Counter[tuple[str, int]] = Counter()
    named, same = set(), set()
    for metadata, table in iter_label_tables(store):
        named.add(metadata["rollouts"])
        same.add(json.dumps([metadata[key] for key in ("config", "versions")], sort_keys=True))
        theirs, rollouts = read_shard(store, metadata["rollouts"], "rollouts")
        if theirs["attempt"] != metadata["attempt"] or theirs["block"] != metadata["block"]:
            figures.faults.append(f"{metadata['block']}: its rollouts file is of another attempt")
        counted: Counted = {}
        for rollout in rollouts.to_pylist():
            for who in (None, rollout["completer"]):
                counts = counted.setdefault((rollout["prefix_id"], who), Counter())
                counts[rollout["outcome"]] += 1
        for row in table.to_pylist():
            rows[row["problem_id"], row["sample_index"]] += 1
            problem = problems.get(row["problem_id"])
            gold = None if problem is None else (problem.text, problem.answer, dict(problem.meta))
            if gold != (row["problem"], row["answer"], json.loads(row["meta"])):
                figures.faults.append(
                    f"{row['problem_id']}: its problem, gold or metadata differs from the input"
                )
            if not _counts_agree(row, counted):
                figures.faults.append(
                    f"{row['solution_id']}: its counts differ from those of its rollouts"
                )
    if len(same) > 1:
        figures.faults.append("the shards have different configurations or versions")
    left_behind = {*store.names("rollouts")} - named
    left_behind |= {*store.names("journals"), *store.names("drivers"), *store.names(PARTIAL)}
    left_behind |= {*store.names("rejects"), *store.names("rejects.jsonl")}
    figures.faults += [f"file left behind: {name}" for name in sorted(left_behind)]
    figures.mismatched = len(figures.faults)
    figures.lost += (wanted - rows).total()
    figures.duplicated += (rows - wanted).total()


def _counts_agree(row: dict[str, Any], counted: Counted) -> bool:
    """Check the counts of each step but the last, for all completers together and for each one."""
    steps = row["steps"][:-1]
    counts_by_completer = [(step["prefix_id"], None, step) for step in steps]
    for completer in row["completers"]:
        step_pairs = zip(steps, completer["steps"], strict=False)
        counts_by_completer += [
            (step["prefix_id"], completer["name"], counts) for step, counts in step_pairs
        ]
    return all(
        counts[f"num_{outcome}"] == counted.get((prefix, who), Counter())[outcome]
        for prefix, who, counts in counts_by_completer
        for outcome in Outcome
    )


if __name__ == "__main__":
    main()
