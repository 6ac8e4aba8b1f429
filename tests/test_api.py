"""mclabel from Python: labelling, training, scoring and grading without a YAML file."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest

import mclabel as mc
from mclabel.labeling.estimators.fixed import FixedEstimator

ROWS = [
    {"id": f"p{i}", "problem": f"P{i} [answer {i}]", "answer": i, "level": "1"} for i in range(6)
]
SCRIPTED = {"engine": "scripted"}


class OwnEstimator(FixedEstimator):
    """An estimator like `fixed` with half as many rollouts."""

    class Settings(FixedEstimator.Settings):
        """The settings of `fixed`."""


def label(problems: Any, **keys: Any) -> mc.LabelRun:
    keys = {"policy": SCRIPTED, "estimator": {"kind": "fixed", "rollouts": 2}, **keys}
    return mc.label(problems, block_problems=2, **keys)


def test_solutions_are_read_while_the_job_goes_on() -> None:
    """The job waits at its first committed block until the first solution is read."""
    was_read = threading.Event()

    def on_state(state: Any) -> None:
        if state.num_blocks_done:
            assert was_read.wait(60)

    run = label(
        ROWS + [{"problem": f"Q{i} [answer 1]", "answer": 1} for i in range(60)], on_state=on_state
    )
    assert next(iter(run)).steps and not run.is_done
    was_read.set()
    assert run.wait().num_items == 66
    assert len(list(run)) == 4 * 66  # a second iteration starts from the beginning
    assert "done" in repr(run)


def test_the_same_call_resumes(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert label(ROWS, out=out).wait().counts["num_solutions"] == 4 * len(ROWS)
    report = label([*ROWS, {"problem": "More [answer 3]", "answer": 3}], out=out).wait()
    assert (report.num_blocks_resumed, report.counts["num_solutions"]) == (3, 4)
    assert report.changes.num_added == 1
    with pytest.raises(mc.ShardError, match="rollouts"):
        label(ROWS, out=out, estimator={"kind": "fixed", "rollouts": 3}).wait()


@pytest.mark.parametrize(
    "estimator",
    [
        "outcome",
        {"kind": "bisect", "rollouts": 2},
        FixedEstimator.Settings(rollouts=2),
        OwnEstimator,
        OwnEstimator.Settings(rollouts=2),
    ],
)
def test_estimators_by_name_keys_settings_and_class(estimator: Any) -> None:
    run = label(ROWS[:2], estimator=estimator)
    assert run.wait().num_items == 2
    assert issubclass(run.config.estimator.component, OwnEstimator) == ("Own" in repr(estimator))


def test_a_job_that_fails_says_so_where_it_is_read() -> None:
    run = label([{"problem": "no answer"}])
    for read in (list, mc.LabelRun.wait, mc.LabelRun.dataset):
        with pytest.raises(mc.DataError, match="no answer: looked for"):
            read(run)  # type: ignore[operator]
    assert "failed" in repr(run)


def test_train_and_score(tmp_path: Path) -> None:
    run = mc.label(
        {"source": "arith", "limit": 4},
        policy={"model": "arith:policy", "max_tokens": 160},
        estimator={"kind": "fixed", "rollouts": 2},
    )
    report = mc.train(
        run,
        base="arith:strong",
        out=tmp_path / "prm",
        **{"head": "likelihood", "backbone_lr": 0, "epochs": 1, "batch_size": 4, "validation": 0},
    )
    labelled = [s for s in run if s.solution.steps][:3]
    scores = mc.score(report.model, labelled)
    assert [len(step_scores) for step_scores in scores] == [len(s.steps) for s in labelled]
    assert all(0 <= score <= 1 for step_scores in scores for score in step_scores)
    rows: list[dict[str, Any]] = [
        {"problem": s.problem.text, "steps": [step.text for step in s.solution.steps]}
        for s in labelled
    ]
    texts = [{"problem": s.problem.text, "solution": s.solution.text} for s in labelled]
    scored_ids = {s.solution.id for s in labelled}
    loaded = mc.load_labels(run).filter(lambda row: row["solution_id"] in scored_ids)
    prm = mc.PRM.load(report.model)
    for solutions in (rows, texts, loaded):
        assert [
            score for step_scores in sorted(mc.score(prm, solutions)) for score in step_scores
        ] == pytest.approx([s for step_scores in sorted(scores) for s in step_scores], abs=1e-6)
    assert mc.score(prm, rows[0])[0] == pytest.approx(scores[0], abs=1e-6)
    with pytest.raises(mc.DataError, match="solution 1: needs problem, and solution or steps"):
        mc.score(prm, [rows[0], {"problem": "x"}])
    with pytest.raises(mc.ConfigError, match="targets: unknown key; did you mean target"):
        mc.train(run, base="arith:strong", out=tmp_path / "other", targets="soft")


def test_grade() -> None:
    graded = mc.grade("So it is 3.\nThe answer is 3.", "4")
    assert (graded.answer, graded.verdict) == ("3", mc.Verdict.WRONG)
    for checker, verdict in (
        ("math", mc.Verdict.RIGHT),
        ({"kind": "math", "units_optional": False}, mc.Verdict.WRONG),
    ):
        assert mc.grade("5", "5 cm", checker=checker).verdict is verdict
    with pytest.raises(
        mc.ConfigError, match=r"checker.unit_optional: .*did you mean checker.units_optional"
    ):
        mc.grade("5", "5", checker={"kind": "math", "unit_optional": True})


@pytest.mark.parametrize(
    "checker", ["math", {"kind": "math", "units_optional": False}], ids=["name", "keys"]
)
def test_a_grade_of_numbers_takes_few_calls(checker: Any) -> None:
    """The test counts calls of Python functions.

    A new settings class or an event loop would take thousands of calls.
    """
    calls = 0

    def count_calls(*event: Any) -> None:
        nonlocal calls
        calls += event[1] == "call"

    mc.grade("The answer is 72.", "72", checker=checker)
    before = sys.getprofile()
    sys.setprofile(count_calls)
    try:
        graded = mc.grade("The answer is 72.", "72", checker=checker)
    finally:
        sys.setprofile(before)
    assert graded.verdict is mc.Verdict.RIGHT
    assert calls < 150


def test_a_grade_that_needs_a_worker_comes_in_threads_loops_and_forks() -> None:
    pairs = [(rf"\boxed{{\cos {n}x}}", rf"1-2\sin^2 \frac{{{n}x}}{{2}}") for n in range(2, 7)]

    async def grade_first() -> mc.Grade:
        return mc.grade(*pairs[0])

    assert asyncio.run(grade_first()).verdict is mc.Verdict.RIGHT
    with ThreadPoolExecutor(3) as threads:
        verdicts = list(threads.map(lambda pair: mc.grade(*pair).verdict, pairs[1:4]))
    assert verdicts == [mc.Verdict.RIGHT] * 3
    child = os.fork()
    if child == 0:
        os._exit(0 if mc.grade(*pairs[4]).verdict is mc.Verdict.RIGHT else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert mc.grade(*pairs[4]).verdict is mc.Verdict.RIGHT


def test_all_names_are_there() -> None:
    assert dir(mc) == sorted([*mc.__all__, "__version__"])
    # An imported submodule would replace a function of the same name.
    assert not {module.name for module in iter_modules(mc.__path__)} & set(mc.__all__)
    assert all(getattr(mc, name) is not None for name in mc.__all__)
    with pytest.raises(AttributeError, match="no attribute 'labels_of'"):
        _ = mc.labels_of
