"""Label solutions, look at the steps, train a PRM on the labels and score with it.

    python examples/label_in_python.py

The example uses bundled models and takes a minute on a CPU. Replace `problems` by your own rows,
and `arith:policy` by your model.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import mclabel as mc
from mclabel.domains.arith.problems import generate_problems

NUM_PROBLEMS = 4


def main(folder: Path) -> None:
    # Problems are rows with `problem` and `answer`, given as a list, a datasets.Dataset or the name
    # of a file.
    problems = [
        {"problem": problem.text, "answer": problem.answer}
        for problem in generate_problems(NUM_PROBLEMS, seed=0, split="test")
    ]

    # The policy samples four solutions of each problem, and eight rollouts from each step. If the
    # job was interrupted, the same call resumes the run in `out`. Without `out`, the run is written
    # to a temporary folder.
    run = mc.label(
        problems,
        policy={"model": "arith:policy", "max_tokens": 200},
        estimator={"kind": "fixed", "rollouts": 8},
        solutions={"per_problem": 4},
        out=folder / "run",
    )

    # Solutions are yielded when their block is committed, while later blocks are still sampled.
    labelled = []
    for solution in run:
        labelled.append(solution)
        if len(labelled) == 1:
            show(solution)
    print(f"\n{len(labelled)} solutions, {run.wait().num_tokens:,} tokens")

    # Train a PRM that starts from the policy, and score the steps of one solution.
    report = mc.train(
        run,
        base="arith:policy",
        out=folder / "prm",
        head="likelihood",
        backbone_lr=1e-4,
        head_lr=1e-2,
        epochs=4,
        batch_size=8,
    )
    (scores,) = mc.score(report.model, labelled[:1])
    print("scores of its steps:", " ".join(f"{score:.2f}" for score in scores))


def show(solution: mc.LabeledSolution) -> None:
    """Print a solution with the value of each step."""
    print(solution.problem.text)
    for index, (step, label) in enumerate(
        zip(solution.solution.steps, solution.steps, strict=True)
    ):
        value = "  - " if label.value is None else f"{label.value:.2f}"
        mark = "  <- first error" if index == solution.first_error else ""
        print(f"  {value}  {step.text.rstrip()}{mark}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
