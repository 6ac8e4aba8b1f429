"""The commands `mclabel eval labels` and `mclabel eval processbench` on real runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mclabel.core.records import Outcome
from mclabel.data.readers.judged import read_processbench
from mclabel.evaluate.labels.quality import find_exact_first_error
from mclabel.evaluate.processbench.figures import measure_processbench
from mclabel.prm.scoring.manifest import find_best_threshold, find_first_score_below
from mclabel.run.shards.labels import commit_block, read_labels
from mclabel.run.shards.store import Store
from tests.support.commands import run_verb
from tests.support.labelled import arith_rows, tiny_model, write_run
from tests.support.rows import row, step

SCRIPTED = ["policy.engine=scripted", "ray.address=none"]


def run_cli(*arguments: str, code: int = 0) -> str:
    result = run_verb(arguments, code=code)
    return result.stdout if code == 0 else result.output


def evaluate(*arguments: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(run_cli("eval", *arguments, "--json"))
    return report


def write_rows(path: Path, rows: list[Mapping[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def bench_rows(count: int, seed: int = 0) -> list[Mapping[str, Any]]:
    """Return solutions of arith in ProcessBench's format, judged by the exact truth."""
    return [
        {
            "id": f"arith-{number}",
            "generator": "misread",
            "problem": labelled.problem.text,
            "steps": [step.text.strip() for step in labelled.solution.steps],
            "final_answer_correct": error is None,
            "label": -1 if error is None else error,
        }
        for number, labelled in enumerate(arith_rows(count, seed=seed))
        for error in [find_exact_first_error(labelled)]
    ]


@pytest.fixture(scope="module")
def arith_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_run(tmp_path_factory.mktemp("arith") / "run", arith_rows(60))


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return two runs with one seed: the same solutions, with 4 and 12 rollouts per prefix."""
    root = tmp_path_factory.mktemp("scripted")
    problems = [
        {"id": f"p{i}", "problem": f"P{i} [answer {i}]", "answer": str(i), "level": i % 3}
        for i in range(12)
    ]
    source = f"problems.source={write_rows(root / 'problems.jsonl', problems)}"
    for rollouts in (4, 12):
        run_cli(
            "label",
            "/dev/null",
            source,
            f"out={root}/k{rollouts}",
            "estimator.kind=fixed",
            f"estimator.rollouts={rollouts}",
            *SCRIPTED,
        )
    return root


def test_labels_of_arith_against_exact_truth(arith_run: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    table = run_cli("eval", "labels", arith_run, "-o", str(out))
    report = evaluate("labels", arith_run)
    assert json.loads((out / "labels.json").read_text()) == report
    assert run_cli("eval", "labels", arith_run, "--format", "md") == (out / "labels.md").read_text()
    overall = report["groups"]["all"]
    # The labels equal the truth, so all errors are found.
    assert report["truth"] == "exact" and overall["num_unknown"] == 0
    for name in ("first_error_accuracy", "first_error_accuracy_wrong", "f1", "kappa", "agreement"):
        assert overall["quality"][name] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert set(overall["calibration"]) == {"value, outcome", "value, sound"}
    assert overall["monotonicity"]["rising_solutions"]["value"] == 0
    assert any(name.startswith("family: ") for name in report["groups"])
    for line in (
        "First errors against exact truth",
        "Do the values hold",
        "(!): fewer than 20 problems",
        "The labels find 100% (100 to 100%) of first errors and call 0%",
    ):
        assert line in " ".join(table.split())
    assert "answer_type: small" not in table  # fewer than five problems
    # equals the first-error accuracy, because all labels are decided
    assert "of these right" not in table
    assert max(map(len, table.splitlines())) <= 100
    assert {path.name for path in out.iterdir()} >= {"reliability.svg", "positions.png"}


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
        run_cli("eval", "labels", source, "-o", str(out), "--seed", seed)
    names = sorted(path.name for path in outs[0].iterdir())
    assert len(names) == 6
    for name in names:
        assert (outs[0] / name).read_bytes() == (outs[1] / name).read_bytes(), name
    assert (outs[0] / "labels.json").read_bytes() != (outs[2] / "labels.json").read_bytes()


def test_labels_against_another_run(scripted: Path) -> None:
    report = evaluate("labels", f"{scripted}/k4", "--truth", f"run:{scripted}/k12")
    overall = report["groups"]["all"]
    assert report["truth"] == "run" and overall["num_unknown"] == 0
    assert {"level: 0", "level: 1", "level: 2"} <= set(report["groups"])
    fixed = overall["intervals"]["fixed"]
    # With one seed, the reference's first 4 rollouts of a prefix equal the labels' own, and 8 are
    # new.
    assert fixed["reference_rollouts"] == 8
    assert fixed["coverage"]["value"] > 0.9 and 0.5 < fixed["width"]["value"] < 1
    assert overall["calibration"]["value, reference"]["num_predictions"] > 100
    assert 0 < overall["quality"]["kappa"]["value"] < 1
    itself = evaluate("labels", f"{scripted}/k4", "--truth", f"run:{scripted}/k4")["groups"]["all"]
    # the reference has no other rollouts
    assert itself["quality"]["kappa"]["value"] == 1 and itself["intervals"] == {}


def test_runs_of_one_seed_without_rollouts_are_not_compared(
    scripted: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bare = [
        f"problems.source={scripted}/problems.jsonl",
        *SCRIPTED,
        "estimator.kind=fixed",
        "estimator.rollouts=12",
        "keep_rollouts=false",
    ]
    run_cli("label", "/dev/null", f"out={tmp_path}/bare", *bare)
    report = evaluate("labels", f"{scripted}/k4", "--truth", f"run:{tmp_path}/bare")
    assert report["groups"]["all"]["intervals"] == {}
    assert "were sampled with the same seed" in caplog.text
    run_cli("label", "/dev/null", f"out={tmp_path}/other", "seed=5", *bare)
    solutions = [
        {"problem_id": r.problem.id, "solution": r.solution.text}
        for r in read_labels(Store(f"{scripted}/k4"))
    ]
    run_cli(
        "label",
        "/dev/null",
        f"out={tmp_path}/given",
        "seed=5",
        f"solutions.path={write_rows(tmp_path / 'given.jsonl', solutions)}",
        *bare,
    )
    report = evaluate("labels", f"{scripted}/k4", "--truth", f"run:{tmp_path}/given")
    assert report["groups"]["all"]["intervals"]["fixed"]["reference_rollouts"] == 12


def test_labels_against_ratings_of_prm800k(arith_run: str, tmp_path: Path) -> None:
    rated = [
        {
            "is_quality_control_question": False,
            "is_initial_screening_question": False,
            "question": {"problem": solution["problem"], "pre_generated_steps": solution["steps"]},
            "label": {
                "steps": [
                    {
                        "completions": [
                            {"text": text, "rating": -1 if n == solution["label"] else 1}
                        ],
                        "human_completion": None,
                        "chosen_completion": 0,
                    }
                    for n, text in enumerate(solution["steps"])
                    if solution["label"] < 0 or n <= solution["label"]
                ],
                "finish_reason": "solution" if solution["label"] < 0 else "found_error",
            },
        }
        for solution in bench_rows(60)[:20]
    ]
    overall = evaluate(
        "labels", arith_run, "--truth", f"prm800k:{write_rows(tmp_path / 'rated.jsonl', rated)}"
    )["groups"]["all"]
    assert (overall["num_unknown"], overall["quality"]["num_solutions"]) == (40, 20)
    assert overall["quality"]["first_error_accuracy"]["value"] == 1


@pytest.mark.parametrize(
    ("truth", "message"),
    [
        ("human", "--truth human: must be `exact`, processbench:FILE"),
        ("processbench:", "--truth processbench: must be `exact`"),
        ("processbench:missing.jsonl", "missing.jsonl: no such file"),
        ("run:nowhere", "nowhere: no such folder"),
        ("exact", "its problem carries no program"),
        ("processbench:OTHER", "holds labels for none of the 48 solutions"),
    ],
)
def test_truths_that_are_none(scripted: Path, tmp_path: Path, truth: str, message: str) -> None:
    truth = truth.replace("OTHER", write_rows(tmp_path / "other.jsonl", bench_rows(4)))
    assert message in run_cli("eval", "labels", f"{scripted}/k4", "--truth", truth, code=2)


def test_labels_made_on_processbench_by_a_job(tmp_path: Path) -> None:
    """The documented steps: join golds, label the given solutions, and measure the labels."""
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
    printed = run_cli("eval", "processbench-golds", bench, "--golds", golds, "-o", str(joined))
    # P1 comes from the file. Of the others, P0, P2, P4 and P6 have a right solution.
    assert "3 solutions with a gold from files, 10 from right solutions; 7 left out" in printed
    assert "the first being toy-3" in printed
    made = [json.loads(line) for line in joined.read_text().splitlines()]
    assert len(made) == 13 and set(made[0]) == {"problem", "answer", "steps"}
    run_cli(
        "label", "/dev/null", f"out={tmp_path}/run", f"problems.source={joined}",
        f"solutions.path={joined}", *SCRIPTED,
    )  # fmt: skip
    result = evaluate("processbench", bench, "--labels", f"{tmp_path}/run", "-o", f"{tmp_path}/out")
    toy = result["splits"]["toy"]
    assert (toy["num_wrong"], toy["num_right"]) == (3, 10)
    assert toy["missing"] == [f"toy-{i}" for i in range(3, 20, 2) if i % 8 != 1]
    assert toy["reasons"] == {"not_in_run": 7}
    # The scripted policy never recovers after a wrong line, and before it nearly always can.
    assert toy["wrong_accuracy"]["value"] == 1 and toy["right_accuracy"]["value"] > 0.5
    assert json.loads((tmp_path / "out/processbench.json").read_text()) == result
    assert "| toy | 3 | 10 | 7 |" in (tmp_path / "out/processbench.md").read_text()
    assert "Reasons: 7 not in the run." in " ".join(
        run_cli("eval", "processbench", bench, "--labels", f"{tmp_path}/run").split()
    )


def test_why_solutions_of_a_run_have_no_prediction(tmp_path: Path) -> None:
    """The reasons are: no verdict, only the last step labelled, cut otherwise, not labelled."""
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
    split = evaluate(
        "processbench",
        write_rows(tmp_path / "b.jsonl", judged),
        "--labels",
        shard,
        "-o",
        f"{tmp_path}/o",
    )["splits"]["b"]
    why = {
        skipped["id"]: (skipped["reason"], skipped["detail"])
        for skipped in map(json.loads, (tmp_path / "o/left_out.jsonl").read_text().splitlines())
    }
    assert {name: reason for name, (reason, _) in why.items()} == {
        "b": "no_verdict",
        "c": "outcome_only",
        "d": "other_steps",
        "e": "not_in_run",
    }
    assert why["d"][1] == "3 steps in the run, 2 in the file"
    assert "is ungraded compared with the gold answer '1'" in why["b"][1]
    assert sum(split["reasons"].values()) == 4 == len(split["missing"])


@pytest.fixture(scope="module")
def prm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a PRM and an ORM, trained on a few solutions."""
    root = tmp_path_factory.mktemp("prm")
    labels = write_run(root / "labels", arith_rows(32, seed=9))
    common = [f"labels=[{labels}]", f"base={tiny_model(root / 'base')}", "batch_size=8"]
    run_cli("train", "/dev/null", f"out={root}/prm", *common, "max_steps=20", "head_lr=1.0e-2")
    run_cli("train", "/dev/null", f"out={root}/orm", *common, "max_steps=1", "target=outcome")
    return root


def test_a_prm_on_processbench(prm: Path, tmp_path: Path) -> None:
    gsm = write_rows(tmp_path / "processbench_gsm8k.jsonl", bench_rows(40))
    other_split = write_rows(
        tmp_path / "other.jsonl",
        [
            *bench_rows(20, seed=4),
            {"id": "long", "problem": "x", "steps": ["1 + 1 = 2 " * 2000], "label": 0},
        ],
    )
    result = evaluate("processbench", gsm, other_split, "--model", f"{prm}/prm")
    splits = result["splits"]
    assert splits["other"]["missing"] == ["long"]
    assert splits["other"]["reasons"] == {"too_long": 1} and splits["gsm8k"]["reasons"] == {}
    rows = read_processbench(gsm)
    scores = {
        row["id"]: row["scores"]
        for row in map(json.loads, run_cli("score", f"{prm}/prm", gsm).splitlines())
    }
    threshold = find_best_threshold(rows, scores)
    expected = measure_processbench(
        {"gsm8k": rows},
        {
            "gsm8k": {
                name: find_first_score_below(values, threshold) for name, values in scores.items()
            }
        },
    ).splits["gsm8k"]
    assert ((result["threshold"], splits["gsm8k"]["f1"]["value"])) == pytest.approx(
        (threshold, expected.f1.value)
    )
    fixed = evaluate("processbench", other_split, "--model", f"{prm}/prm", "--threshold", "1")
    assert fixed["threshold"] == 1 and fixed["splits"]["other"]["right_accuracy"]["value"] == 0


def test_what_processbench_refuses(prm: Path, tmp_path: Path) -> None:
    rows = bench_rows(8)
    files = {
        "MATH": write_rows(tmp_path / "processbench_math.jsonl", rows),
        "EMPTY": write_rows(tmp_path / "empty.jsonl", []),
        "UNLIKE": write_rows(tmp_path / "unlike.jsonl", [*rows[:2], {"problem": "x"}]),
        "NOBODY": write_rows(tmp_path / "nobody.jsonl", [dict(rows[0], problem=" ")]),
        "GSM": write_rows(tmp_path / "gsm8k.jsonl", [dict(row, label=-1) for row in rows]),
        "OUTCOMES": f"{tmp_path}/outcomes",
        "PRM": f"--model={prm}/prm",
        "ORM": f"--model={prm}/orm",
    }
    run_cli(
        "label",
        "/dev/null",
        f"out={files['OUTCOMES']}",
        "problems.source=arith",
        "problems.limit=1",
        "estimator.kind=outcome",
        *SCRIPTED,
    )
    for words, message in (
        ("MATH PRM", "chosen on the split gsm8k, which is not among math"),
        ("EMPTY PRM", "empty.jsonl: holds no rows"),
        ("UNLIKE PRM --strict", "unlike.jsonl, line 3: not a row of ProcessBench"),
        ("NOBODY PRM", "nobody.jsonl, line 1: problem=' '"),
        ("MATH MATH PRM", "is a second file of the split math"),
        ("MATH ORM --threshold 0.5", "is an ORM"),
        ("MATH --labels OUTCOMES", "none of its 0 solutions with a verdict"),
        ("GSM PRM", "the split gsm8k holds no solution with an error"),
    ):
        assert message in run_cli(
            "eval", "processbench", *[files.get(word, word) for word in words.split()], code=2
        )
    bench = write_rows(
        tmp_path / "b.jsonl", [dict(row, final_answer_correct=False) for row in rows]
    )
    printed = run_cli("eval", "processbench-golds", bench, "-o", str(tmp_path / "x.jsonl"), code=2)
    assert "no problem has a gold answer" in printed and not (tmp_path / "x.jsonl").exists()
