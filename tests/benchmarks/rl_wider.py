"""What a trained policy does beside right answers in one try, and what its PRM then knows of it."""

from __future__ import annotations

from pathlib import Path

from mclabel.core.config.load import bundled_config, load_config
from mclabel.core.records import Problem
from mclabel.domains.arith.problems import generate
from mclabel.domains.arith.stories import HELD_OUT_FAMILIES
from mclabel.labeling.policy import prepare_policy
from mclabel.prm.scoring.score import PRM
from mclabel.rl.config import RLConfig
from mclabel.rl.measure import Measurement
from mclabel.rl.training.crediting import Crediting
from mclabel.rl.training.rollouts import LiveEngine
from tests.benchmarks.runs import quickstart_prm
from tests.benchmarks.sizes import BenchmarkSize


def held_out(policy: str, size: BenchmarkSize) -> dict[str, float]:
    """Right, lucky and sound solutions of families that no training has seen."""
    count = size.pick(smoke=1, quick=50, full=300)
    problems = generate(count, seed=78, split="test", families=HELD_OUT_FAMILIES)
    summary = measured(policy, problems, samples=size.pick(smoke=2, quick=16, full=16)).summary()
    return {name: summary[name] for name in ("pass_at_1", "lucky", "sound")}


def drift(work: Path, prm: Path, policy: str, size: BenchmarkSize) -> dict[str, dict[str, float]]:
    """How right a PRM is on the solutions of the policy that it was trained on, `before`; on those
    of a trained policy, `after`; and there after it was trained anew on labels of that policy's
    solutions to other problems, `retrained`.
    """
    keys = ("problems.seed=92", f"policy.model={policy}")
    anew = quickstart_prm(work / "loop", size, *keys)
    problems = generate(size.pick(smoke=1, quick=100, full=1000), seed=77, split="test")
    found = {}
    pairs = {"before": ("arith:policy", prm), "after": (policy, prm), "retrained": (policy, anew)}
    for name, (model, scorer) in pairs.items():
        summary = measured(model, problems, samples=4, prm=scorer).summary()
        found[name] = {key: summary[key] for key in ("prm_brier", "prm_less_outcome")}
    return found


def measured(
    policy: str, problems: list[Problem], *, samples: int, prm: Path | None = None
) -> Measurement:
    """What a policy does on problems.

    Args:
        policy: folder or name.
        problems: with the truth of arith.
        samples: of each.
        prm: whose lowest scores are measured, too.
    """
    keys = ["out=unused", f"policy.model={policy}"]
    config = load_config(RLConfig, bundled_config("rl/arith.yaml"), keys)
    prepared = prepare_policy(config.policy)
    scorer = None if prm is None else PRM.load(str(prm), device="cpu", threads=2)
    with LiveEngine(prepared.maker(0)(), config) as live:
        groups = live.groups(problems, seed=1, size=samples)
        return Measurement.from_groups(
            groups, Crediting(config, live, scorer).lowest_scores(groups)
        )
