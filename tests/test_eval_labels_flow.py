"""`mclabel eval labels` and `mclabel eval processbench`, by the commands, on real runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mclabel.cli import main
from mclabel.core.records import Outcome
from mclabel.data.readers.judged import read_processbench
from mclabel.evaluate.labels.quality import exact_first_error
from mclabel.evaluate.processbench.figures import processbench
from mclabel.prm.scoring.manifest import best_threshold, first_below
from mclabel.run.shards.labels import commit_block, read_labels
from mclabel.run.shards.store import Store
from tests.support.labelled import arith_rows, tiny_model, write_run
from tests.support.rows import row, step

SCRIPTED = ["policy.engine=scripted", "ray.address=none"]


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner(env={"COLUMNS": "250"}).invoke(main, list(arguments))
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.output


def figures(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("eval", *arguments, "--json"))
    return found


def write_rows(path: Path, rows: list[Mapping[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def bench_rows(count: int, seed: int = 0) -> list[Mapping[str, Any]]:
    """Solutions of arith in the format of ProcessBench, judged by exact truth."""
    found = []
    for number, one in enumerate(arith_rows(count, seed=seed)):
        error = exact_first_error(one)
        found.append(
            {
                "id": f"arith-{number}",
                "generator": "misread",
                "problem": one.problem.text,
                "steps": [step.text.strip() for step in one.solution.steps],
                "final_answer_correct": error is None,
                "label": -1 if error is None else error,
            }
        )
    return found


@pytest.fixture(scope="module")
def arith_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_run(tmp_path_factory.mktemp("arith") / "run", arith_rows(60))


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one seed: the same solutions, 4 and 12 rollouts a prefix."""
    root = tmp_path_factory.mktemp("scripted")
    problems = [
        {"id": f"p{i}", "problem": f"P{i} [answer {i}]", "answer": str(i), "level": i % 3}
        for i in range(12)
    ]
    source = f"problems.source={write_rows(root / 'problems.jsonl', problems)}"
    for rollouts in (4, 12):
        out = [f"out={root}/k{rollouts}", "estimator.kind=fixed", f"estimator.rollouts={rollouts}"]
        run("label", "/dev/null", source, *out, *SCRIPTED)
    return root


def test_labels_of_arith_against_exact_truth(arith_run: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    table = run("eval", "labels", arith_run, "-o", str(out))
    assert "First errors against exact truth" in table and "Do the values hold" in table
    found = figures("labels", arith_run)
    assert json.loads((out / "labels.json").read_text()) == found
    assert run("eval", "labels", arith_run, "--format", "md") == (out / "labels.md").read_text()
    overall = found["groups"]["all"]
    # The rows are labelled by the truth, so nothing is missed.
    assert found["truth"] == "exact" and overall["num_unknown"] == 0
    for name in ("first_error_accuracy", "first_error_accuracy_wrong", "f1", "kappa", "agreement"):
        assert overall["quality"][name] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert set(overall["calibration"]) == {"value, outcome", "value, sound"}
    assert overall["monotonicity"]["rising_solutions"]["value"] == 0
    assert any(name.startswith("family: ") for name in found["groups"])
    assert "(!): under 20 problems" in " ".join(table.split())
    assert "answer_type: small" not in table  # fewer than five problems
    assert "The labels find 100% (100 to 100%) of first errors and call 0%" in table
    assert "of these right" not in table  # the same as the first error, as all are decided
    assert max(map(len, table.splitlines())) <= 100
    for stem in ("reliability", "positions"):
        assert (out / f"{stem}.png").read_bytes().startswith(b"\x89PNG")
        assert b"<svg" in (out / f"{stem}.svg").read_bytes()


@pytest.mark.slow
def test_the_same_bytes_whatever_the_order_of_shards(arith_run: str, tmp_path: Path) -> None:
    rows = list(read_labels(Store(arith_run)))
    store = Store(str(tmp_path / "again"), create=True)
    for number in range(4):  # other rows in other shards
        commit_block(store, f"{4 - number:016x}", "a", rows[number::4][::-1], None, {})
    outs = [tmp_path / name for name in ("one", "two", "three")]
    for source, out, seed in (
        (arith_run, outs[0], "3"),
        (str(tmp_path / "again"), outs[1], "3"),
        (arith_run, outs[2], "4"),
    ):
        run("eval", "labels", source, "-o", str(out), "--seed", seed)
    names = sorted(path.name for path in outs[0].iterdir())
    assert len(names) == 6
    for name in names:
        assert (outs[0] / name).read_bytes() == (outs[1] / name).read_bytes(), name
    assert (outs[0] / "labels.json").read_bytes() != (outs[2] / "labels.json").read_bytes()


def test_labels_against_another_run(scripted: Path) -> None:
    found = figures("labels", f"{scripted}/k4", "--truth", f"run:{scripted}/k12")
    overall = found["groups"]["all"]
    assert found["truth"] == "run" and overall["num_unknown"] == 0
    assert {"level: 0", "level: 1", "level: 2"} <= set(found["groups"])
    # One seed: the reference's first 4 rollouts of a prefix are the labels' own, 8 are new.
    assert overall["intervals"]["fixed"]["reference_rollouts"] == 8
    assert overall["intervals"]["fixed"]["coverage"]["value"] > 0.9
    assert 0.5 < overall["intervals"]["fixed"]["width"]["value"] < 1
    assert overall["calibration"]["value, reference"]["num_predictions"] > 100
    assert 0 < overall["quality"]["kappa"]["value"] < 1
    itself = figures("labels", f"{scripted}/k4", "--truth", f"run:{scripted}/k4")["groups"]["all"]
    assert itself["quality"]["kappa"]["value"] == 1
    assert itself["intervals"] == {}  # every rollout is its own


def test_runs_of_one_seed_without_rollouts_are_not_compared(
    scripted: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = f"problems.source={scripted}/problems.jsonl"
    bare = [
        source,
        *SCRIPTED,
        "estimator.kind=fixed",
        "estimator.rollouts=12",
        "keep_rollouts=false",
    ]
    run("label", "/dev/null", f"out={tmp_path}/bare", *bare)
    found = figures("labels", f"{scripted}/k4", "--truth", f"run:{tmp_path}/bare")
    assert found["groups"]["all"]["intervals"] == {}
    assert "were sampled with the same seed" in caplog.text
    run("label", "/dev/null", f"out={tmp_path}/other", "seed=5", *bare)
    given = [
        {"problem_id": r.problem.id, "solution": r.solution.text}
        for r in read_labels(Store(f"{scripted}/k4"))
    ]
    path = f"solutions.path={write_rows(tmp_path / 'given.jsonl', given)}"
    run("label", "/dev/null", f"out={tmp_path}/given", "seed=5", path, *bare)
    found = figures("labels", f"{scripted}/k4", "--truth", f"run:{tmp_path}/given")
    assert found["groups"]["all"]["intervals"]["fixed"]["reference_rollouts"] == 12


def test_labels_against_people(arith_run: str, tmp_path: Path) -> None:
    rows = bench_rows(60)
    # Both solutions of every second problem, as they are often the same.
    late = [dict(row, label=-1) if n // 2 % 2 else row for n, row in enumerate(rows[:50])]
    file = write_rows(tmp_path / "people.jsonl", late)
    found = figures("labels", arith_run, "--truth", f"processbench:{file}")
    overall = found["groups"]["all"]
    assert (found["truth"], overall["num_unknown"]) == ("processbench", 10)
    changed = sum(a["label"] != b["label"] for a, b in zip(rows, late, strict=False))
    assert overall["quality"]["num_solutions"] == 50 and 5 < changed < 45
    assert overall["quality"]["first_error_accuracy"]["value"] == pytest.approx(1 - changed / 50)


def test_labels_against_ratings_of_prm800k(arith_run: str, tmp_path: Path) -> None:
    rated = []
    for one in bench_rows(60)[:20]:
        stop = len(one["steps"]) if one["label"] < 0 else one["label"] + 1
        steps = [
            {
                "completions": [{"text": text, "rating": -1 if n == one["label"] else n % 2}],
                "human_completion": None,
                "chosen_completion": 0,
            }
            for n, text in enumerate(one["steps"][:stop])
        ]
        finish = "solution" if one["label"] < 0 else "found_error"
        rated.append(
            {
                "is_quality_control_question": False,
                "is_initial_screening_question": False,
                "question": {"problem": one["problem"], "pre_generated_steps": one["steps"]},
                "label": {"steps": steps, "finish_reason": finish},
            }
        )
    truth = f"prm800k:{write_rows(tmp_path / 'rated.jsonl', rated)}"
    overall = figures("labels", arith_run, "--truth", truth)["groups"]["all"]
    assert overall["num_unknown"] == 40
    assert overall["quality"]["num_solutions"] == 20
    assert overall["quality"]["first_error_accuracy"]["value"] == 1


@pytest.mark.parametrize(
    ("truth", "message"),
    [
        ("human", "--truth human: must be exact, processbench:FILE"),
        ("processbench:", "--truth processbench: must be exact"),
        ("processbench:missing.jsonl", "missing.jsonl: no such file"),
        ("run:nowhere", "nowhere: no such folder"),
        ("exact", "its problem carries no program"),
        ("processbench:OTHER", "holds labels for none of the 48 solutions"),
    ],
)
def test_truths_that_are_none(scripted: Path, tmp_path: Path, truth: str, message: str) -> None:
    other = write_rows(tmp_path / "other.jsonl", bench_rows(4))
    truth = truth.replace("OTHER", other)
    assert message in run("eval", "labels", f"{scripted}/k4", "--truth", truth, code=2)


def test_labels_made_on_processbench_by_a_job(tmp_path: Path) -> None:
    """Golds joined, solutions labelled as given, and measured: the documented way."""
    rows: list[Mapping[str, Any]] = [
        {
            "id": f"toy-{i}",
            "problem": f"P{i % 8} [answer {i % 8}]",
            "steps": [*lines, f"The answer is \\boxed{{{i % 8 if label < 0 else 900 + i}}}."],
            "final_answer_correct": label < 0,
            "label": label,
        }
        for i in range(20)
        for label, lines in [
            (1, ["Line 1 is sound.", "Line 2 is wrong.", f"Line 3 is sound. {i}"])
            if i % 2
            else (-1, ["Line 1 is sound.", "Line 2 is sound.", f"Line 3 is sound. {i}"])
        ]
    ]
    bench = write_rows(tmp_path / "processbench_toy.jsonl", rows)
    golds = write_rows(
        tmp_path / "golds.jsonl", [{"question": "P1 [answer 1]", "answer": "So\n#### 1"}]
    )
    joined = tmp_path / "made" / "toy.jsonl"
    said = run("eval", "processbench-golds", bench, "--golds", golds, "-o", str(joined))
    # P1 from the file; of the others those with a right solution: P0, P2, P4 and P6.
    assert "3 solutions with a gold from files, 10 from right solutions; 7 left out" in said
    assert "the first being toy-3" in said
    made = [json.loads(line) for line in joined.read_text().splitlines()]
    assert len(made) == 13 and set(made[0]) == {"problem", "answer", "steps"}
    run(
        "label", "/dev/null", f"out={tmp_path}/run", f"problems.source={joined}",
        f"solutions.path={joined}", *SCRIPTED,
    )  # fmt: skip
    result = figures("processbench", bench, "--labels", f"{tmp_path}/run", "-o", f"{tmp_path}/out")
    toy = result["splits"]["toy"]
    assert (toy["num_wrong"], toy["num_right"]) == (3, 10)
    assert toy["missing"] == [f"toy-{i}" for i in range(3, 20, 2) if i % 8 != 1]
    assert toy["reasons"] == {"not_in_run": 7}
    left_out = (tmp_path / "out/left_out.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in left_out] == toy["missing"]
    assert set(json.loads(left_out[0])) == {"split", "id", "reason", "detail"}
    # After a wrong line the scripted policy never recovers; before it it nearly always may.
    assert toy["wrong_accuracy"]["value"] == 1
    assert toy["right_accuracy"]["value"] > 0.5
    assert json.loads((tmp_path / "out/processbench.json").read_text()) == result
    assert "| toy | 3 | 10 | 7 |" in (tmp_path / "out/processbench.md").read_text()
    table = run("eval", "processbench", bench, "--labels", f"{tmp_path}/run")
    assert "Why: 7 not in the run." in " ".join(table.split())


def test_why_solutions_of_a_run_have_no_prediction(tmp_path: Path) -> None:
    """Each reason once: no verdict, the last step alone labelled, cut otherwise, not labelled."""
    sound, unknown = step(True), step()
    labelled = [
        row("a", [sound, sound], origin="given", outcome=Outcome.RIGHT, texts=["one", "a"]),
        row("b", [unknown] * 2, origin="given", outcome=Outcome.UNGRADED, texts=["one", "b"]),
        row("c", [unknown, step(False)], origin="given", texts=["one", "c"]),
        row("d", [sound, sound, sound], origin="given", outcome=Outcome.RIGHT),
    ]
    judged = [
        {"id": name, "problem": f"Problem {name}", "steps": ["one", name], "label": -1}
        for name in "abcde"
    ]
    shard = write_run(tmp_path / "run", labelled)
    bench = write_rows(tmp_path / "b.jsonl", judged)
    split = figures("processbench", bench, "--labels", shard, "-o", f"{tmp_path}/o")["splits"]["b"]
    lines = (tmp_path / "o/left_out.jsonl").read_text().splitlines()
    why = {one["id"]: (one["reason"], one["detail"]) for one in map(json.loads, lines)}
    assert {name: reason for name, (reason, _) in why.items()} == {
        "b": "no_verdict",
        "c": "outcome_only",
        "d": "other_steps",
        "e": "not_in_run",
    }
    assert why["d"][1] == "3 steps in the run, 2 in the file"
    assert "is ungraded against '1'" in why["b"][1]
    assert sum(split["reasons"].values()) == 4 == len(split["missing"])


@pytest.fixture(scope="module")
def prm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PRMs that saw a few solutions: with a step token, and an ORM."""
    root = tmp_path_factory.mktemp("prm")
    labels = write_run(root / "labels", arith_rows(32, seed=9))
    common = [f"labels=[{labels}]", f"base={tiny_model(root / 'base')}", "batch_size=8"]
    run("train", "/dev/null", f"out={root}/prm", *common, "max_steps=20", "head_lr=1.0e-2")
    run("train", "/dev/null", f"out={root}/orm", *common, "max_steps=1", "target=outcome")
    return root


def test_a_prm_on_processbench(prm: Path, tmp_path: Path) -> None:
    gsm = write_rows(tmp_path / "processbench_gsm8k.jsonl", bench_rows(40))
    long = {"id": "long", "problem": "x", "steps": ["1 + 1 = 2 " * 2000], "label": 0}
    other = write_rows(tmp_path / "other.jsonl", [*bench_rows(20, seed=4), long])
    result = figures("processbench", gsm, other, "--model", f"{prm}/prm")
    assert result["splits"]["other"]["missing"] == ["long"]
    assert result["splits"]["other"]["reasons"] == {"too_long": 1}
    assert result["splits"]["gsm8k"]["reasons"] == {}
    rows = read_processbench(gsm)
    lines = run("score", f"{prm}/prm", gsm).splitlines()
    scores = {row["id"]: row["scores"] for row in map(json.loads, lines)}
    threshold = best_threshold(rows, scores)
    assert result["threshold"] == pytest.approx(threshold)
    said = {name: first_below(one, threshold) for name, one in scores.items()}
    expected = processbench({"gsm8k": rows}, {"gsm8k": said}).splits["gsm8k"]
    assert result["splits"]["gsm8k"]["f1"]["value"] == pytest.approx(expected.f1.value)
    given = figures("processbench", other, "--model", f"{prm}/prm", "--threshold", "1")
    assert given["threshold"] == 1 and given["splits"]["other"]["right_accuracy"]["value"] == 0


def test_what_processbench_refuses(prm: Path, arith_run: str, tmp_path: Path) -> None:
    rows = bench_rows(8)
    math = write_rows(tmp_path / "processbench_math.jsonl", rows)
    empty = write_rows(tmp_path / "empty.jsonl", [])
    unlike = write_rows(tmp_path / "unlike.jsonl", [*rows[:2], {"problem": "x", "answer": "1"}])
    nobody = write_rows(tmp_path / "nobody.jsonl", [dict(rows[0], problem=" ")])

    def refused(*arguments: str) -> str:
        return run("eval", "processbench", *arguments, code=2)

    outcomes = f"{tmp_path}/outcomes"
    arith = ["problems.source=arith", "problems.limit=1", "estimator.kind=outcome"]
    run("label", "/dev/null", f"out={outcomes}", *arith, *SCRIPTED)
    model = ["--model", f"{prm}/prm"]
    assert "chosen on the split gsm8k, which is not among math" in refused(math, *model)
    assert "empty.jsonl: an empty split: holds no rows" in refused(empty, *model)
    assert "unlike.jsonl, line 3: not a row of ProcessBench" in refused(unlike, *model, "--strict")
    assert "nobody.jsonl, line 1: problem=' '" in refused(nobody, *model)
    assert "is a second file of the split math" in refused(math, math, *model)
    assert "is an ORM" in refused(math, "--model", f"{prm}/orm", "--threshold", "0.5")
    assert "none of its 0 solutions with a verdict" in refused(math, "--labels", outcomes)
    right = [dict(row, label=-1) for row in rows]
    gsm = write_rows(tmp_path / "gsm8k.jsonl", right)
    assert "the split gsm8k holds no solution with an error" in refused(gsm, *model)


def test_golds_that_nobody_knows(tmp_path: Path) -> None:
    rows = [dict(row, final_answer_correct=False) for row in bench_rows(4)]
    bench = write_rows(tmp_path / "b.jsonl", rows)
    said = run("eval", "processbench-golds", bench, "-o", str(tmp_path / "x.jsonl"), code=2)
    assert "no problem has a gold answer" in said
    assert not (tmp_path / "x.jsonl").exists()
