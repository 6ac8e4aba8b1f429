"""Compare policies trained with step credit and with outcome credit, and check for reward hacking.

    python -m tests.benchmarks.rl [--smoke | --quick] [--arms outcome,mc] [--seeds 0] [--steps 40]

`mclabel rl` trains the bundled policy with several credits, called arms, from the same start and on
the same problems. Every policy is measured on the same test problems: right answers, right answers
through wrong steps, and solutions without a wrong step. It is also measured on held-out families
and for changes that a hacked reward causes; the reward `planted` is made to be hacked. Arms are
compared with the first arm, which is outcome GRPO unless `--arms` begins with another. The
comparison is at equal steps and at equal tokens (all sampled tokens, including those for values),
by a paired bootstrap over problems.

The benchmark also measures the error and the cost of each way to estimate advantages. It also
measures the speed of the reward server, and the accuracy of a PRM on the solutions of the first
arm's policy, before and after the PRM is retrained on labels of that policy. `--quick` leaves these
two out unless an arm needs a PRM. The last line is JSON.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from mclabel.rl.measure import compare_measurements
from tests.benchmarks.figures import Numbers, finish, numbers
from tests.benchmarks.rl_arms import ARMS, Arm, compare_arms, train_arm
from tests.benchmarks.rl_server import server_speed
from tests.benchmarks.rl_values import compare
from tests.benchmarks.rl_wider import measure_drift, measure_held_out
from tests.benchmarks.runs import quickstart_prm
from tests.benchmarks.sizes import BenchmarkSize, SizedParser


def main() -> None:
    parser = SizedParser(__doc__)
    parser.add_argument(
        "--arms", help=f"arms to train, separated by commas, from: {', '.join(ARMS)}"
    )
    parser.add_argument("--seeds", default="0", help="random seeds of the trainings, such as 0,1,2")
    parser.add_argument("--steps", type=int, help="optimizer steps of each training")
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
        name: [train_arm(work, name, seed, steps, size, prm) for seed in seeds] for name in names
    }
    first, *others = names
    models = {name: str(work / f"{name}-{seeds[0]}" / "model") for name in names}
    policies = {"before": "arith:policy"} | (models if size is not BenchmarkSize.SMOKE else {})
    return {
        "pass_at_1": {name: compare_arms(found, None) for name, found in runs.items()},
        "minus_before": {
            name: compare_arms(
                found, [replace(one, measured={0: one.measured[0]}) for one in found]
            )
            for name, found in runs.items()
        },
        "by_step": {name: _by_step(found) for name, found in runs.items()},
        "signs_of_hacking": {name: _signs(found) for name, found in runs.items()},
        "held_out": {name: measure_held_out(policy, size) for name, policy in policies.items()},
        "drift": None if prm is None else measure_drift(work, prm, models[first], size),
        "minus_first_equal_steps": {name: compare_arms(runs[name], runs[first]) for name in others},
        "minus_first_equal_tokens": {
            name: compare_arms(runs[name], runs[first], equal_tokens=True) for name in others
        },
    }


def _by_step(arms: list[Arm]) -> dict[str, dict[str, float]]:
    """Return the figures and the tokens so far at each measured step, as means over seeds."""
    found = {}
    for step in sorted(arms[0].measured):
        rows = [one.measured[step].summary() | {"tokens": one.tokens_by_step[step]} for one in arms]
        found[f"step {step}"] = {
            key: round(sum(row[key] for row in rows) / len(rows), 4) for key in rows[0]
        }
    return found


def _signs(arms: list[Arm]) -> dict[str, Numbers]:
    """Return the signs of a hacked reward by seed, with the change of each figure."""
    return {
        f"{name}, seed {number}": numbers(change.change)
        for number, arm in enumerate(arms)
        for name, change in compare_measurements(
            arm.measured[0], arm.measured[max(arm.measured)]
        ).items()
        if change.is_bad
    }


if __name__ == "__main__":
    main()
