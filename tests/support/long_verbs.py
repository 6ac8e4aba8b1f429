"""Runs of every verb on long traces: one problem, two solutions, any number of steps.

The policy is the scripted one, whose tokens are characters.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

from tests.support.labelled import tiny_model
from tests.support.viewer_process import ViewerHere

NUM_SOLUTIONS = 2
FORMATS = ("parquet", "trl", "math-shepherd", "rlhflow", "prm800k", "processbench")


def write_given_solutions(folder: Path, num_steps: int, tokens_per_step: int) -> None:
    """Write a problem, two solutions that differ from their first step on, and a tiny model."""
    folder.mkdir(parents=True)
    tiny_model(folder / "base", 2 * num_steps * tokens_per_step + 1000)
    problem = {"id": "p0", "problem": "P0 [answer 7]", "answer": "7"}
    (folder / "problems.jsonl").write_text(json.dumps(problem))
    with (folder / "solutions.jsonl").open("w") as file:
        for number in range(NUM_SOLUTIONS):
            text = _make_trace(num_steps, tokens_per_step, random.Random(number))
            file.write(json.dumps({"problem_id": "p0", "solution": text}) + "\n")
    (folder / "empty.yaml").write_text("seed: 1\n")


def _make_trace(num_steps: int, tokens_per_step: int, rng: random.Random) -> str:
    lines = []
    for number in range(num_steps - 1):
        a, b = rng.randrange(10, 99), rng.randrange(10, 99)
        line = f"Step {number} : {a} + {b} = {a + b} , "
        while len(line) < tokens_per_step - 15:
            line += rng.choice(["so ", "then ", "and ", "we ", "have ", "it "])
        lines.append(f"{line}is sound.\n")
    return "".join(lines) + "The answer is \\boxed{7}."


def verbs(folder: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield names and arguments of all measured verbs, each after those whose output it reads."""
    empty, fixed, prm = (f"{folder}/{name}" for name in ("empty.yaml", "fixed", "prm"))
    label = [
        *("label", empty, f"problems.source={folder}/problems.jsonl", "policy.engine=scripted"),
        *(f"solutions.path={folder}/solutions.jsonl", "policy.max_tokens=200000"),
        *("ray.address=none", "estimator.rollouts=1"),
    ]
    outcome = [override for override in label if not override.startswith("estimator.rollouts")]
    yield "label outcome", (*outcome, "estimator=outcome", f"out={folder}/outcome")
    yield "label fixed", (*label, "estimator=fixed", f"out={fixed}")
    yield "label posterior", (*label, "estimator=posterior", f"out={folder}/posterior")
    yield "judge symbolic", ("judge", fixed, "-o", f"{folder}/symbolic", "ray.address=none")
    critic = ("judge=critic", "judge.policy.engine=scripted")
    yield "judge critic", ("judge", fixed, "-o", f"{folder}/critic", "ray.address=none", *critic)
    yield "combine", ("combine", fixed, f"{folder}/symbolic", "-o", f"{folder}/combined")
    yield "show", ("show", fixed)
    yield "labels", ("labels", fixed)
    yield "report", ("report", fixed, "-o", f"{folder}/report.html")
    for to in FORMATS:
        yield f"export {to}", ("export", fixed, "--to", to, "-o", f"{folder}/{to}")
    length = f"max_tokens={1_000_000}"
    train = (f"labels=[{fixed}]", f"base={folder}/base", length, "max_steps=1", "validation=0")
    yield "train", ("train", empty, f"out={prm}", *train)
    yield "score", ("score", prm, fixed, "-o", f"{folder}/scores.jsonl", "--device", "cpu")
    yield "eval labels", ("eval", "labels", f"{folder}/posterior", "--truth", f"run:{fixed}")


def viewer(run: Path, num_steps: int) -> None:
    """Request every part of solutions from the viewer."""
    with ViewerHere(str(run)) as server:
        server.wait_for(NUM_SOLUTIONS)
        for row in server.get("solutions")["rows"]:
            solution = row["solution_id"]
            server.get("solution", id=solution)
            server.get("rollouts", id=solution, step=num_steps - 2)
            server.get("text", id=solution, what=f"step.{num_steps - 2}", offset=0)
