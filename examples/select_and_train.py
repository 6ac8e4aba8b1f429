"""Sample a pool, and in turns select, label, train from the base, and evaluate.

    python examples/select_and_train.py

On the bundled models, on a CPU, in two minutes. The sizes are tiny: they show how the parts fit
together, not what selecting gains.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import mclabel as mc
from mclabel import jobs
from mclabel.select.job import SelectConfig


def main(folder: Path, turns: int = 2, budget: int = 24) -> None:
    policy = {"model": "arith:policy", "max_tokens": 200}
    for seed, name in enumerate(("pool", "test")):  # graded, and not rolled out, which is cheap
        mc.label(
            {"source": "arith", "split": "test", "seed": seed, "limit": 16},
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
        # What is worth most to the PRM of the turn before; at first there is none, so at random.
        out = str(folder / f"chosen{turn}.parquet")
        ranked = {"rule": "uniform"} if prm is None else {"rule": "convincing", "prm": prm}
        config = SelectConfig(solutions=pool, out=out, budget=budget, exclude=manifests, **ranked)
        print(f"turn {turn}:", *list(jobs.select(config).lines(out))[:-1], sep="\n  ")
        manifests.append(out)
        run = mc.label(
            {"source": "arith"},  # those of the pool take its place
            policy=policy,
            estimator={"kind": "fixed", "rollouts": 8},
            solutions={"run": pool, "select": out},
            out=folder / f"labels{turn}",
        )
        run.wait()
        runs.append(run)
        # From the base each time: a PRM that is trained on has learned from fewer labels twice.
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
    """Share of pairs of a right and a wrong solution in which the right one scores higher."""
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
