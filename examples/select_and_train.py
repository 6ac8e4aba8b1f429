"""Sample a pool of solutions, then repeat four stages: select, label, train a PRM and evaluate it.

    python examples/select_and_train.py

The example uses bundled models and takes a minute on a CPU. The sizes are too small to show the
gain from selection. They only show how the stages fit together.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import mclabel as mc
from mclabel import jobs
from mclabel.select.job import SelectConfig


def main(folder: Path, turns: int = 2, budget: int = 10) -> None:
    policy = {"model": "arith:policy", "max_tokens": 200}
    for seed, name in enumerate(("pool", "test")):  # cheap: graded only, without rollouts
        mc.label(
            {"source": "arith", "split": "test", "seed": seed, "limit": 10},
            policy=policy,
            estimator="outcome",
            solutions={"per_problem": 4},
            out=folder / name,
        ).wait()
    pool, held_out = str(folder / "pool"), list(mc.read_labels(folder / "test"))

    prm: str | None = None
    manifests: list[str] = []
    runs: list[mc.LabelRun] = []
    for turn in range(turns):
        # Select mostly wrong solutions with high scores by the PRM of the previous turn. The first
        # turn has no PRM yet and selects at random.
        out = str(folder / f"chosen{turn}.parquet")
        ranked = {"rule": "uniform"} if prm is None else {"rule": "convincing", "prm": prm}
        config = SelectConfig(solutions=pool, out=out, budget=budget, exclude=manifests, **ranked)
        print(f"turn {turn}:", *list(jobs.select(config).lines(out))[:-1], sep="\n  ")
        manifests.append(out)
        run = mc.label(
            {"source": "arith"},  # unused: the problems are those of the selected solutions
            policy=policy,
            estimator={"kind": "fixed", "rollouts": 8},
            solutions={"run": pool, "select": out},
            out=folder / f"labels{turn}",
        )
        run.wait()
        runs.append(run)
        # Train from the base in each turn. A PRM that continued from the previous turn would have
        # been trained more often on the earlier labels.
        report = mc.train(
            runs,
            base="arith:policy",
            out=folder / f"prm{turn}",
            head="likelihood",
            backbone_lr=1e-4,
            head_lr=1e-2,
            epochs=3,
        )
        prm = str(report.model)
        print(f"  right above wrong in {ordered(prm, held_out):.0%} of pairs")


def ordered(prm: str, solutions: list[mc.LabeledSolution]) -> float:
    """Return the share of pairs of a right and a wrong solution in which the right one scores
    higher.
    """
    scores = [min(steps) for steps in mc.score(prm, solutions)]
    ended = [one.solution.outcome for one in solutions]
    right = [score for score, how in zip(scores, ended, strict=True) if how == "right"]
    wrong = [score for score, how in zip(scores, ended, strict=True) if how == "wrong"]
    return sum(a > b for a in right for b in wrong) / (len(right) * len(wrong))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
