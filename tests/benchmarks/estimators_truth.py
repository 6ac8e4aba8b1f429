"""The true values of some prefixes of a run: thousands of rollouts each.

    python -m tests.benchmarks.estimators_truth RUN [--prefixes 200] [--rollouts 2048] --out FILE

Draws prefixes at random from those of the run's solutions, the bare problems left out, and rolls
each out afresh with the run's own policy and sampling parameters. FILE becomes JSON, how many
rollouts were right by prefix id; run again, it goes on where it was ended.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
from pathlib import Path

from mclabel.config import LabelConfig, bundled_config, load_config
from mclabel.data.shards import read_labels
from mclabel.data.store import Store
from mclabel.edge.policy import policy_maker
from mclabel.labeling.desk import Desk
from mclabel.labeling.rollouts import grade_rollout
from mclabel.policy import Policy
from mclabel.records import LabeledSolution, Outcome
from mclabel.seeds import sampling_seed

SIDE_BY_SIDE = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="labelled with the bundled policy as the quickstart has it")
    parser.add_argument("--prefixes", type=int, default=200)
    parser.add_argument("--rollouts", type=int, default=2048)
    parser.add_argument("--part", default="0/1", help="this one of so many processes")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    part, parts = map(int, args.part.split("/"))
    found = json.loads(args.out.read_text()) if args.out.exists() else {}
    chosen = _choose(args.run, args.prefixes)[part::parts]
    todo = [one for one in chosen if one[0] not in found]
    asyncio.run(_roll_all(todo, args.rollouts, found, args.out))
    print(json.dumps({"prefixes": len(found), "rollouts": args.rollouts}))


def _choose(run: str, count: int) -> list[tuple[str, LabeledSolution, int]]:
    """Prefix id, a solution that holds it, and its number of steps there."""
    prefixes: dict[str, tuple[str, LabeledSolution, int]] = {}
    for row in read_labels(Store(run)):
        for depth, step in enumerate(row.steps[:-1], start=1):
            prefixes.setdefault(step.prefix_id, (step.prefix_id, row, depth))
    ordered = [prefixes[name] for name in sorted(prefixes)]
    return random.Random(0).sample(ordered, min(count, len(ordered)))


async def _roll_all(
    todo: list[tuple[str, LabeledSolution, int]], rollouts: int, found: dict[str, int], out: Path
) -> None:
    config = load_config(LabelConfig, bundled_config("label/quickstart.yaml"), [f"out={out}.run"])
    policy = policy_maker(config.policy, seed=config.seed)()
    await policy.start()
    desk = Desk()
    for begin in range(0, len(todo), SIDE_BY_SIDE):
        some = todo[begin : begin + SIDE_BY_SIDE]
        counts = await asyncio.gather(*(_roll(policy, desk, *one, rollouts) for one in some))
        found |= {one[0]: count for one, count in zip(some, counts, strict=True)}
        fresh = out.with_suffix(".new")
        fresh.write_text(json.dumps(found))
        os.replace(fresh, out)
        print(f"{begin + len(some)} of {len(todo)} prefixes", flush=True)
    await policy.close()


async def _roll(
    policy: Policy, desk: Desk, name: str, row: LabeledSolution, depth: int, rollouts: int
) -> int:
    """How many of so many rollouts are right."""
    steps = row.solution.steps[:depth]
    ids, text = row.solution.ids[: steps[-1].end], "".join(step.text for step in steps)

    async def one(index: int) -> bool:
        seed = sampling_seed(987_654_321, row.problem.id, name, index)
        completion = await policy.sample(row.prompt_ids, ids, seed=seed)
        _, outcome = await grade_rollout(completion, row.problem.answer, prefix=text, desk=desk)
        return outcome is Outcome.RIGHT

    return sum(await asyncio.gather(*(one(i) for i in range(rollouts))))


if __name__ == "__main__":
    main()
