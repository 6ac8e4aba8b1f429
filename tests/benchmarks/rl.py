"""Does credit for steps train a better policy than outcomes do, and is the reward hacked?

    python -m tests.benchmarks.rl [--smoke | --quick] [--arms outcome,mc] [--seeds 0] [--steps 40]

Trains the bundled policy by `mclabel rl` with several credits, from the same start, on the same
problems, and measures every policy on the same test problems: right answers, right answers through
wrong steps, solutions without a wrong step; families that were held out; and whether the figures
moved that a hacked reward moves (`planted` is a reward made to be hacked). Arms are compared with
the first, outcome GRPO unless `--arms` begins with another, at equal steps, and at equal tokens
(all that was sampled, values included), by a paired bootstrap over problems.

Beside that: how far advantages are from the truth by the way of estimating, and its cost. Unless it
is `--quick` and no arm needs a PRM: how much the reward server scores; and how right a PRM is on
the solutions of the first arm's policy, before and after it is trained anew on labels of that
policy. The last line is JSON.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from mclabel.rl.measure import changes
from tests.benchmarks.figures import Numbers, finish, numbers
from tests.benchmarks.rl_arms import ARMS, Arm, compared, trained
from tests.benchmarks.rl_server import server_speed
from tests.benchmarks.rl_values import compare
from tests.benchmarks.rl_wider import drift, held_out
from tests.benchmarks.runs import quickstart_prm
from tests.benchmarks.sizes import BenchmarkSize, SizedParser


def main() -> None:
    parser = SizedParser(__doc__)
    parser.add_argument("--arms", help=f"of {', '.join(ARMS)}")
    parser.add_argument("--seeds", default="0", help="of the trainings, such as 0,1,2")
    parser.add_argument("--steps", type=int, help="of each training")
    args = parser.read()
    size: BenchmarkSize = args.size
    arms = size.pick(smoke=["outcome", "mc"], quick=["outcome", "mc"], full=[*ARMS])
    arms = args.arms.split(",") if args.arms else arms
    seeds = [int(one) for one in args.seeds.split(",")]
    steps = args.steps or size.pick(smoke=1, quick=20, full=80)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        needs_prm = size is not BenchmarkSize.QUICK or any(ARMS[name].needs_prm for name in arms)
        prm = quickstart_prm(work, size, "problems.seed=91") if needs_prm else None
        figures = {
            "advantage_rmse": compare(
                *size.pick(smoke=(1, 2, 4), quick=(8, 8, 100), full=(40, 8, 2000))
            ),
            "server": None if prm is None else server_speed(prm, size),
            **_arms(work, arms, seeds, steps, size, prm),
        }
    finish(figures)


def _arms(
    work: Path,
    names: list[str],
    seeds: list[int],
    steps: int,
    size: BenchmarkSize,
    prm: Path | None,
) -> dict[str, Any]:
    runs: dict[str, list[Arm]] = {
        name: [trained(work, name, seed, steps, size, prm) for seed in seeds] for name in names
    }
    first, *others = names
    models = {name: str(work / f"{name}-{seeds[0]}" / "model") for name in names}
    policies = {"before": "arith:policy"} | (models if size is not BenchmarkSize.SMOKE else {})
    return {
        "pass_at_1": {name: compared(found, None) for name, found in runs.items()},
        "minus_before": {
            name: compared(found, [replace(one, measured={0: one.measured[0]}) for one in found])
            for name, found in runs.items()
        },
        "by_step": {name: _by_step(found) for name, found in runs.items()},
        "signs_of_hacking": {name: _signs(found) for name, found in runs.items()},
        "held_out": {name: held_out(policy, size) for name, policy in policies.items()},
        "drift": None if prm is None else drift(work, prm, models[first], size),
        "minus_first_equal_steps": {name: compared(runs[name], runs[first]) for name in others},
        "minus_first_equal_tokens": {
            name: compared(runs[name], runs[first], equal_tokens=True) for name in others
        },
    }


def _by_step(arms: list[Arm]) -> dict[str, dict[str, float]]:
    """Figures before, half-way and at the end, and tokens up to there; means over seeds."""
    found = {}
    for step in sorted(arms[0].measured):
        rows = [one.measured[step].summary() | {"tokens": one.tokens_by_step[step]} for one in arms]
        found[f"step {step}"] = {
            key: round(sum(row[key] for row in rows) / len(rows), 4) for key in rows[0]
        }
    return found


def _signs(arms: list[Arm]) -> dict[str, Numbers]:
    """Signs of a hacked reward, by seed, and how far the figure moved."""
    return {
        f"{name}, seed {number}": numbers(change.change)
        for number, arm in enumerate(arms)
        for name, change in changes(arm.measured[0], arm.measured[max(arm.measured)]).items()
        if change.is_bad
    }


if __name__ == "__main__":
    main()
