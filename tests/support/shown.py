"""Small labelling runs for the report and the viewer, one of them malicious."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mclabel.core.records import (
    Claim,
    Consensus,
    Counts,
    Flag,
    LabeledSolution,
    Outcome,
    Problem,
    Rollout,
    Solution,
    SourceOpinion,
    Step,
    StepLabel,
)
from mclabel.core.stats.values import estimate_fixed
from mclabel.report.page.example import ExampleCandidate, convert_example_to_page_data
from mclabel.report.page.html import make_template_environment
from mclabel.report.page.report import write_report
from mclabel.run.shards.labels import commit_block
from mclabel.run.shards.manifest import MANIFEST, SemanticConfig, claim_manifest
from mclabel.run.shards.store import Store

CONFIG: dict[str, Any] = {"seed": 0, "estimator": {"kind": "fixed", "rollouts": 4}}

HOSTILE = {
    "script": "<script>window.executed=1</script>",
    "end of script": "</script><script>window.executed=2</script>",
    "handler": "<img src=x onerror=window.executed=3><svg onload=window.executed=4>",
    "link": "[click](javascript:window.executed=5) <a href='javascript:window.executed=6'>x</a>",
    "LaTeX link": r"$\href{javascript:window.executed=7}{x}$ $\url{javascript:window.executed=8}$",
    "LaTeX html": r"$\htmlData{onclick=window.executed=9}{x}$ \(\htmlStyle{background:red}{x}\)",
    "LaTeX image": r"$\includegraphics{http://127.0.0.1:9/x.png}$",
    "LaTeX bomb": r"$\def\a{\b\b}\def\b{\c\c}\def\c{\d\d}\def\d{\e\e}\def\e{\a\a}\a$",
    "LaTeX address": r"$a+\href{https://b.org/c%20d_e#f}{x^2}$ and $\htmlClass{big}{y}=1$",
    "broken LaTeX": r"$\frac{1}{$ and \(\sqrt{\) and $$\begin{matrix} 1 & 2$$ and $x^{y^{z}$",
    "deep LaTeX": "$" + "{" * 900 + "x" + "}" * 900 + "$",
    "huge LaTeX": "$" + "x+" * 20_000 + "x$",
    "long line": "a" * 1_000_000,
    "style": "<style>body{display:none}</style><iframe src=javascript:window.executed=10></iframe>",
    "direction": "\u202egnorw\u202c \u200b \x00 \x1b[31m",
    "template": "{{constructor.constructor('window.executed=11')()}} ${window.executed=12}",
}
"""Texts that a model could write, by the attack that they try."""


def solution(
    number: int,
    steps: list[str],
    good: list[int],
    *,
    outcome: Outcome = Outcome.RIGHT,
    problem: str = "What is $1 + 2$?",
    answer: str = "3",
    prediction: str | None = "3",
    meta: dict[str, str] | None = None,
) -> LabeledSolution:
    """Return a solution whose prefixes had 4 rollouts each, with `good` right rollouts by step.

    The label of the last step is the outcome.
    """
    labels = []
    for index, right in enumerate(good):
        counts = Counts(num_right=right, num_wrong=4 - right, num_tokens=40)
        last = index == len(good) - 1
        estimate = estimate_fixed(counts)
        hard = outcome is Outcome.RIGHT if last else right > 0
        labels.append(
            StepLabel(
                prefix_id=f"prefix-{number}-{index}",
                counts=Counts() if last else counts,
                source="outcome" if last else "fixed",
                hard=hard,
                value=float(hard) if last else estimate.value,
                low=None if last else estimate.low,
                high=None if last else estimate.high,
            )
        )
    return LabeledSolution(
        problem=Problem(id=f"problem-{number}", text=problem, answer=answer, meta=meta or {}),
        solution=Solution(
            id=f"solution-{number}",
            problem_id=f"problem-{number}",
            sample_index=0,
            text="".join(steps),
            ids=tuple(range(len(steps))),
            steps=tuple(Step(text=text, end=i + 1) for i, text in enumerate(steps)),
            finish_reason="stop",
            origin="sampled",
            prediction=prediction,
            outcome=outcome,
        ),
        prompt_ids=(1,),
        steps=tuple(labels),
        first_error=next((i for i, label in enumerate(labels) if label.hard is False), None),
        root=Counts(),
        siblings=Counts(num_right=1),
        root_value=1.0,
    )


def combined(
    row: LabeledSolution, *flags: Flag, kept: bool = True, source: str = "symbolic"
) -> LabeledSolution:
    """Return the solution with the opinions of four sources; `source` has the given flags."""
    at = min((flag.step for flag in flags), default=None)
    source_opinions: list[tuple[str, Claim, bool, int | None, tuple[Flag, ...]]] = [
        ("rollouts", "where", True, row.first_error, ()),
        (source, "at_or_before", True, at, flags),
        ("critic", "where", False, None, ()),
        ("prm", "scores", True, None, ()),
    ]
    opinions = tuple(
        SourceOpinion(
            source=name, claim=claim, is_known=is_known, first_error=error, flags=source_flags
        )
        for name, claim, is_known, error, source_flags in source_opinions
    )
    return replace(row, consensus=Consensus(rule="same_location", kept=kept, opinions=opinions))


def rollouts_of(
    row: LabeledSolution, text: str = "So it is \\boxed{ANSWER}.", reason: str | None = None
) -> list[Rollout]:
    """Return the rollouts behind a solution's counts.

    ANSWER in the text becomes 3, or 4 for a wrong rollout.
    """

    def answer(index: int, step: StepLabel) -> str:
        return "3" if index < step.counts.num_right else "4"

    return [
        Rollout(
            problem_id=row.problem.id,
            prefix_id=step.prefix_id,
            index=index,
            seed=index,
            text=f"{text.replace('ANSWER', answer(index, step))} ({index})",
            num_tokens=10,
            finish_reason="stop",
            prediction=answer(index, step),
            outcome=Outcome.RIGHT if index < step.counts.num_right else Outcome.WRONG,
            reason=reason,
        )
        for step in row.steps
        for index in range(step.counts.num_rollouts)
    ]


def write_run(
    folder: Path,
    rows: list[LabeledSolution],
    rollouts: list[Rollout] | None,
    block: str = "0" * 16,
    config: dict[str, Any] = CONFIG,
) -> str:
    """Write a run, or add a block to an existing one."""
    store = Store(str(folder), create=True)
    claim_manifest(
        store,
        MANIFEST,
        SemanticConfig.from_config(config),
        {"versions": {}},
        restored_id=folder.name,
    )
    commit_block(store, block, "test", rows, rollouts, {"config": config})
    return str(folder)


def example_markup(example: ExampleCandidate, **more: Any) -> str:
    """Render the part of a report that shows one solution."""
    macros: Any = make_template_environment().get_template("macros.html").module
    return str(macros.example(convert_example_to_page_data(example), False, **more))


def report_page(places: Sequence[str], out: str) -> Path:
    """Write a report and return its path."""
    return Path(write_report(places, out)["path"])


def hostile_run(folder: Path) -> str:
    """Write a run in which every text is malicious."""
    rows = []
    for number, text in enumerate(HOSTILE.values()):
        rows.append(
            solution(
                number,
                [f"{text}\n", f"{text} again\n", "end"],
                [2, 0, 0],
                outcome=Outcome.WRONG,
                problem=f"{text} problem",
                answer=text[:3000],
                prediction=text[:3000],
                meta={"family": text[:500], "level": text[:500]},
            )
        )
    rollouts = []
    for row in rows:
        text = row.solution.steps[0].text
        rollouts += rollouts_of(row, text, text[:500])
    return write_run(folder, rows, rollouts)


def twin_run(folder: Path) -> str:
    """Write a run with two samples of a problem that share their first step.

    A third solution, of another problem, has a step without a value.
    """
    texts = ["We add.\n", "That makes 5.\n", "So \\boxed{5}."]
    first = solution(0, texts, [3, 0, 0], outcome=Outcome.WRONG, prediction="5")
    second = solution(1, ["We add.\n", "It is 3.\n", "<b>So</b> \\boxed{3}."], [3, 4, 4])
    second = replace(
        second,
        problem=first.problem,
        solution=replace(second.solution, problem_id=first.problem.id, sample_index=1),
    )
    third = solution(2, ["a\n", "b"], [4, 4])
    unknown = replace(third.steps[0], value=None, low=None, high=None, hard=None)
    third = replace(third, steps=(unknown, third.steps[1]))
    return write_run(folder, [first, second, third], None)


def long_run(folder: Path, num_steps: int) -> str:
    """Write two solutions of `num_steps` steps; the second one's value is low at a single step."""
    texts = [f"Step {number} adds {number}.\n" for number in range(num_steps)]
    good = [4] * num_steps
    rows = [solution(0, texts, good), solution(1, texts, [*good[:-9], 1, *good[-8:]])]
    return write_run(folder, rows, [rollout for row in rows for rollout in rollouts_of(row)])


def plain_run(folder: Path) -> str:
    """Write three solutions: a sound one, one with an error, and a truncated one."""
    rows = [
        solution(0, ["We add $1$ and $2$.\n", "So \\boxed{3}."], [4, 4], meta={"level": "easy"}),
        solution(
            1,
            ["We add.\n", "That makes 5.\n", "So \\boxed{5}."],
            [3, 0, 0],
            outcome=Outcome.WRONG,
            prediction="5",
            meta={"level": "hard"},
        ),
        solution(
            2,
            ["We go round.\n", "And round"],
            [1, 0],
            outcome=Outcome.TRUNCATED,
            prediction=None,
            problem="Find the zebra.",
            answer="\\frac{1}{2}",
            meta={"level": "hard"},
        ),
    ]
    return write_run(folder, rows, [r for row in rows for r in rollouts_of(row)])


SCORED = {"prm:last": 0.6, "prm:min": 0.7, "likelihood:a:sum": 0.5, "likelihood:b:sum": 0.58}
"""Accuracies of methods with scores, as arguments of `evaluation`."""


def evaluation(folder: Path, num_problems: int = 300, **accuracy: float) -> str:
    """Write a best-of-N output with given accuracies at N=4 and intervals of +-0.05."""
    named = {"random": 0.4, "majority": 0.45, "vote:prm": 0.5, "pass": 0.8, **accuracy}

    def estimate(value: float) -> dict[str, float]:
        return {"value": value, "low": value - 0.05, "high": value + 0.05}

    less = {
        a: {b: {**estimate(named[a] - named[b]), "p_value": 0.5} for b in named if b != a}
        for a in named
    }
    fall = {"best_size": 4, "best": 0.5, "last": 0.5, "fall": {**estimate(0.0), "p_value": 1.0}}
    result: dict[str, Any] = {
        "num_problems": num_problems,
        "num_samples": 4,
        "accuracy": {m: {"1": estimate(0.4), "4": estimate(v)} for m, v in named.items()},
        "differences": {"1": less, "4": less},
        "pair_accuracy": {"prm:last": estimate(0.7)},
        "over_optimisation": {"prm:last": fall},
        "groups": {},
    }
    report = {"result": result, "num_excluded": 0, "num_unscored": 0, "fooled": {}}
    folder.mkdir(parents=True)
    content = {**report, "num_fooled": {"prm:last": 1}}
    (folder / "best_of_n.json").write_text(json.dumps(content))
    return str(folder)
