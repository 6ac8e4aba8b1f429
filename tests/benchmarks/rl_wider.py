"""A trained policy on held-out families, and the accuracy of its PRM after the training."""

from __future__ import annotations

from pathlib import Path

from mclabel.core.config.load import bundled_config, load_config
from mclabel.core.records import Problem
from mclabel.domains.arith.problems import generate_problems
from mclabel.domains.arith.stories import HELD_OUT_FAMILIES
from mclabel.labeling.policy import prepare_policy
from mclabel.prm.scoring.score import PRM
from mclabel.rl.config import RLConfig
from mclabel.rl.measure import Measurement
from mclabel.rl.training.crediting import CreditAssigner
from mclabel.rl.training.rollouts import LiveEngine
from tests.benchmarks.runs import quickstart_prm
from tests.benchmarks.sizes import BenchmarkSize


def measure_held_out(policy: str, size: BenchmarkSize) -> dict[str, float]:
    """Measure right, lucky and sound solutions of problem families that were never trained on."""
    count = size.pick(smoke=1, quick=50, full=300)
    problems = generate_problems(count, seed=78, split="test", families=HELD_OUT_FAMILIES)
    summary = measure_policy(
        policy, problems, samples=size.pick(smoke=2, quick=16, full=16)
    ).summary()
    return {name: summary[name] for name in ("pass_at_1", "lucky", "sound")}


def measure_drift(
    work: Path, prm: Path, policy: str, size: BenchmarkSize
) -> dict[str, dict[str, float]]:
    """Measure the accuracy of a PRM before and after its policy is trained.

    `before` is on solutions of the policy that the PRM was trained on. `after` is on solutions of
    the trained policy. `retrained` is on the same solutions, after the PRM was trained again on
    labels of that policy's solutions to other problems.
    """
    keys = ("problems.seed=92", f"policy.model={policy}")
    anew = quickstart_prm(work / "loop", size, *keys)
    problems = generate_problems(size.pick(smoke=1, quick=100, full=1000), seed=77, split="test")
    found = {}
    pairs = {"before": ("arith:policy", prm), "after": (policy, prm), "retrained": (policy, anew)}
    for name, (model, scorer) in pairs.items():
        summary = measure_policy(model, problems, samples=4, prm=scorer).summary()
        found[name] = {key: summary[key] for key in ("prm_brier", "prm_less_outcome")}
    return found


def measure_policy(
    policy: str, problems: list[Problem], *, samples: int, prm: Path | None = None
) -> Measurement:
    """Measure a policy on problems.

    Args:
        policy: folder or name of the policy.
        problems: problems of arith, whose truth is known.
        samples: number of samples for each problem.
        prm: PRM whose lowest scores are also measured; None for no PRM.
    """
    keys = ["out=unused", f"policy.model={policy}"]
    config = load_config(RLConfig, bundled_config("rl/arith.yaml"), keys)
    prepared = prepare_policy(config.policy)
    scorer = None if prm is None else PRM.load(str(prm), device="cpu", threads=2)
    with LiveEngine(prepared.engine_factory(0)(), config) as live:
        groups = live.groups(problems, seed=1, size=samples)
        return Measurement.from_groups(
            groups, CreditAssigner(config, live, scorer).lowest_scores(groups)
        )
