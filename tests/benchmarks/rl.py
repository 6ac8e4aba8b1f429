"""Does credit for steps train a policy better than outcomes do, and is the reward hacked?

    python -m tests.benchmarks.rl [--smoke | --quick] [--run FOLDER] [--arms outcome,mc] [--seeds 0]

Trains the bundled policy by `mclabel rl` with several credits, from the same start, on the same
problems, and measures every policy on the same test problems: right answers, right answers through
wrong steps, solutions without a wrong step; one of 16 tries, and families that were held out; and
whether the figures moved that a hacked reward moves (`planted` is a reward made to be hacked). Arms
are compared with outcome GRPO at equal steps, and at equal tokens (all that was sampled, values
included), by a paired bootstrap over problems.

Beside that: how far advantages are from the truth by the way of estimating and its cost; tokens a
second of our rollouts beside TRL's own `generate`; and how far loss and gradients are from TRL's
where all steps have the same advantage. Unless it is `--quick` and no arm needs a PRM: how much the
reward server scores, beside the PRM alone; and how right a PRM is on the solutions of the first
arm's policy, before and after it is trained anew on labels of that policy. A folder `--run` is
kept: what is there is not done again, and a training that was stopped goes on. The last line is
JSON.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from mclabel.rl.measure import changes
from tests.benchmarks.quickstart_prm import quickstart_prm
from tests.benchmarks.rl_arms import ARMS, Arm, compared, trained
from tests.benchmarks.rl_server import server_speed
from tests.benchmarks.rl_trl import gradient_difference, rollout_speed
from tests.benchmarks.rl_values import WAYS, compare
from tests.benchmarks.rl_wider import drift, wider
from tests.benchmarks.sizes import BenchmarkSize, SizedParser

SMOKE_ARMS = ("outcome", "mc")
QUICK_ARMS = ("outcome", "mc")


def main() -> None:
    parser = SizedParser(__doc__)
    parser.add_argument("--run", type=Path, help="keep what is made in this folder")
    parser.add_argument("--arms", help=f"of {', '.join(ARMS)}")
    parser.add_argument("--seeds", default="0", help="of the trainings, such as 0,1,2")
    parser.add_argument("--steps", type=int, help="of each training")
    args = parser.read()
    size: BenchmarkSize = args.size
    arms = (
        args.arms.split(",")
        if args.arms
        else size.pick(smoke=[*SMOKE_ARMS], quick=[*QUICK_ARMS], full=[*ARMS])
    )
    seeds = [int(one) for one in args.seeds.split(",")]
    steps = args.steps or size.pick(smoke=1, quick=20, full=80)
    console = Console(width=120)
    with tempfile.TemporaryDirectory() as folder:
        work = args.run or Path(folder)
        needs_prm = size is not BenchmarkSize.QUICK or any(ARMS[name].needs_prm for name in arms)
        prm = quickstart_prm(work, size, "problems.seed=91") if needs_prm else None
        summary = {
            "rollout_speed_ratio_to_trl": rollout_speed(size),
            "gradient_difference": gradient_difference(),
            "advantage_rmse": _values(size, console),
            "server": None if prm is None else server_speed(prm, size),
            **_arms(work, arms, seeds, steps, size, console, prm),
        }
    print(json.dumps(summary))


def _values(size: BenchmarkSize, console: Console) -> dict[str, list[float]]:
    num_problems, group, truth = size.pick(smoke=(2, 2, 4), quick=(8, 8, 100), full=(40, 8, 2000))
    found = compare(num_problems, group, truth, WAYS)
    table = Table(title="Advantages of steps beside the truth")
    for column in ("way", "rmse", "bias", "value tokens a solution", "values known"):
        table.add_column(column, justify="left" if column == "way" else "right")
    for name, one in found.items():
        table.add_row(
            name,
            "{:.3f} [{:.3f}, {:.3f}]".format(*one.rmse),
            f"{one.bias:+.3f}",
            f"{one.tokens:.0f}",
            f"{one.share_known:.2f}",
        )
    console.print(table)
    return {name: [*(round(x, 4) for x in o.rmse), round(o.tokens, 1)] for name, o in found.items()}


def _arms(
    work: Path,
    names: list[str],
    seeds: list[int],
    steps: int,
    size: BenchmarkSize,
    console: Console,
    prm: Path | None,
) -> dict[str, Any]:
    runs: dict[str, list[Arm]] = {
        name: [trained(work, name, seed, steps, size, prm) for seed in seeds] for name in names
    }
    table = Table(title=f"Policies after {steps} steps, on the same test problems")
    columns = (
        "credit",
        "right",
        "lucky",
        "sound",
        "length",
        "cut",
        "tokens",
        "minutes",
        "less outcome",
    )
    for column in columns:
        table.add_column(column, justify="left" if column == "credit" else "right")
    summary: dict[str, Any] = {"pass_at_1": {}, "tokens": {}, "lucky": {}, "sound": {}}
    steps_alike: dict[str, list[float]] = {}
    tokens_alike: dict[str, list[float]] = {}
    before = runs[names[0]][0].first
    summary["pass_at_1"]["before"] = [round(before["pass_at_1"], 4)] * 3
    summary["lucky"]["before"] = round(before.get("lucky", 0.0), 4)
    table.add_row("before", *(f"{before[name]:.3f}" for name in ("pass_at_1", "lucky", "sound")))
    for name, found in runs.items():
        own = compared(found, None)
        less = compared(found, runs["outcome"]) if "outcome" in runs and name != "outcome" else None
        mean = {key: sum(one.last[key] for one in found) / len(found) for key in found[0].last}
        tokens = sum(one.tokens for one in found) / len(found)
        summary["pass_at_1"][name] = own
        summary["tokens"][name] = round(tokens)
        summary["lucky"][name] = round(mean.get("lucky", 0.0), 4)
        summary["sound"][name] = round(mean.get("sound", 0.0), 4)
        table.add_row(
            name,
            _ranged(own),
            f"{mean.get('lucky', 0.0):.3f}",
            f"{mean.get('sound', 0.0):.3f}",
            f"{mean['length']:.0f}",
            f"{mean['truncated']:.3f}",
            f"{tokens:,.0f}",
            f"{sum(one.seconds for one in found) / len(found) / 60:.1f}",
            "" if less is None else _ranged(less),
        )
        if less is not None:
            steps_alike[name] = less
            tokens_alike[name] = compared(found, runs["outcome"], equal_tokens=True)
    console.print(table)
    policies = {"before": "arith:policy"} | {
        name: str(work / f"{name}-{seeds[0]}" / "model") for name in names
    }
    return summary | {
        "signs_of_hacking": {name: _signs(found) for name, found in runs.items()},
        "wider": {name: wider(policy, size) for name, policy in policies.items()},
        "drift": None if prm is None else drift(work, prm, policies[names[0]], size),
        "minus_grpo_equal_steps": steps_alike,
        "minus_grpo_equal_tokens": tokens_alike,
        "mc_minus_grpo_equal_steps": steps_alike.get("mc"),
        "mc_minus_grpo_equal_tokens": tokens_alike.get("mc"),
    }


def _signs(arms: list[Arm]) -> list[str]:
    """Signs of a hacked reward in any of the seeds."""
    found = [changes(arm.measured[0], arm.measured[max(arm.measured)]) for arm in arms]
    return sorted({name for one in found for name, change in one.items() if change.is_bad})


def _ranged(found: list[float]) -> str:
    return "{:.3f} [{:.3f}, {:.3f}]".format(*found)


if __name__ == "__main__":
    main()
