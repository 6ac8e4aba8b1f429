"""The commands from labels to a PRM to chosen answers, on the scripted policy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.commands import run_verb
from tests.support.labelled import tiny_model

SCRIPTED = ["policy.engine=scripted", "ray.address=none"]


def run_cli(*arguments: str, code: int = 0) -> str:
    result = run_verb(arguments, code=code)
    return result.output if code else result.stdout


def write_problems(path: Path, first: int, count: int) -> str:
    path.write_text(
        "\n".join(
            map(
                json.dumps,
                (
                    [
                        {"id": f"p{i}", "problem": f"P{i} [answer {i}]", "answer": str(i)}
                        for i in range(first, first + count)
                    ]
                ),
            )
        )
    )
    return f"problems.source={path}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with labels, a base model, and a PRM and an ORM trained on the labels."""
    root = tmp_path_factory.mktemp("flow")
    base = tiny_model(root / "base")
    run_cli(
        "label",
        "/dev/null",
        f"out={root}/labels",
        write_problems(root / "a.jsonl", 0, 20),
        *SCRIPTED,
    )
    common = [f"labels=[{root}/labels]", f"base={base}", "head=likelihood", "max_steps=12"]
    common += ["batch_size=8", "backbone_lr=1.0e-3", "head_lr=1.0e-2"]
    assert "validation pair accuracy" in run_cli("train", "/dev/null", f"out={root}/prm", *common)
    run_cli("train", "/dev/null", f"out={root}/orm", "target=outcome", *common)
    return root


def evaluate(world: Path, *overrides: str, code: int = 0) -> str:
    source = write_problems(world / "b.jsonl", 15, 13)
    return run_cli(
        "eval", "best-of-n", "/dev/null", f"out={world}/best", source, *SCRIPTED,
        "samples=6", f"exclude=[{world}/labels]",
        f"scorers={{prm: {world}/prm, orm: {world}/orm}}", f"likelihood={{base: {world}/base}}",
        *overrides, code=code,
    )  # fmt: skip


def test_best_of_n_compares_all_methods_and_leaves_out_what_was_trained_on(world: Path) -> None:
    output = evaluate(world)
    assert "5 problems left out (trained on)." in output
    conclusion = next(line for line in output.splitlines() if " better than " in line)
    assert conclusion.startswith("prm:"), "it is about a PRM, not about an ORM or a likelihood"
    report = json.loads((world / "best" / "best_of_n.json").read_text())
    result = report["result"]
    assert (report["num_excluded"], result["num_problems"], result["num_samples"]) == (5, 8, 6)
    scorers = {
        "orm", "prm:last", "prm:min", "prm:product", "prm:mean",
        "likelihood:base:sum", "likelihood:base:min",
    }  # fmt: skip
    assert (
        set(result["accuracy"]) == {"random", "majority", "pass", "vote:prm", "vote:orm"} | scorers
    )
    assert set(result["pair_accuracy"]) == scorers
    assert list(result["accuracy"]["orm"]) == ["1", "2", "4", "6"]
    provenance = json.loads((world / "best" / "provenance.json").read_text())
    assert provenance["config"]["trust_remote_code"] == [] and provenance["versions"]
    assert (world / "best" / "best_of_n.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (world / "best" / "best_of_n.svg").read_bytes()


@pytest.mark.parametrize("form", ["--format=table", "--json"])
def test_best_of_n_in_which_nothing_is_right_is_a_failure(tmp_path: Path, form: str) -> None:
    (tmp_path / "p.jsonl").write_text(json.dumps({"problem": "P [answer 1]", "answer": "77"}))
    message = run_cli(
        "eval", "best-of-n", "/dev/null", f"problems.source={tmp_path}/p.jsonl", *SCRIPTED,
        "samples=2", f"out={tmp_path}/best", form, code=1,
    )  # fmt: skip
    assert "none of the 2 samples is right, so every method has accuracy 0" in message
    assert json.loads((tmp_path / "best" / "best_of_n.json").read_text())["num_right"] == 0


@pytest.mark.slow
def test_best_of_n_runs_again_to_the_same_bytes_without_scoring_again(world: Path) -> None:
    evaluate(world)
    report = (world / "best" / "best_of_n.json").read_bytes()
    scores = {path: path.stat().st_mtime_ns for path in (world / "best" / "scores").iterdir()}
    assert len(scores) == 3
    evaluate(world)
    assert (world / "best" / "best_of_n.json").read_bytes() == report
    assert {p: p.stat().st_mtime_ns for p in (world / "best" / "scores").iterdir()} == scores
    # Cached scores belong to a model, under any name of the scorer.
    before = json.loads(report)["result"]["pair_accuracy"]
    evaluate(world, f"scorers={{prm: {world}/orm, orm: {world}/prm}}")
    after = json.loads((world / "best" / "best_of_n.json").read_text())["result"]["pair_accuracy"]
    assert {p: p.stat().st_mtime_ns for p in (world / "best" / "scores").iterdir()} == scores
    assert (after["prm"], after["orm:last"]) == (before["orm"], before["prm:last"])


@pytest.mark.slow
def test_best_of_n_reads_the_solutions_of_a_run(world: Path) -> None:
    evaluate(world)
    run_and_out = [f"run={world}/best/samples", f"out={world}/given"]
    markdown = evaluate(world, *run_and_out, "samples=4", "--format", "md")
    # A fifth of the eight problems has fewer than the five that a group needs.
    assert "| majority |" in markdown and "hardest fifth" not in markdown
    assert not (world / "given" / "samples").exists()
    report = json.loads(evaluate(world, *run_and_out, "samples=4", "--json"))
    assert report["result"]["num_samples"] == 4
    fooled = report["fooled"]["prm:last"]
    assert len(fooled) == min(10, report["num_fooled"]["prm:last"])
    assert all(row["score"] > row["right_score"] for row in fooled)
    # The folder of an earlier best-of-N run is also accepted.
    before = (world / "given" / "best_of_n.json").read_bytes()
    evaluate(world, f"run={world}/best", f"out={world}/given", "samples=4")
    assert (world / "given" / "best_of_n.json").read_bytes() == before
    message = evaluate(world, *run_and_out, "samples=7", code=2)
    assert "problem p" in message and "has 6 solutions, fewer than samples=7" in message


def test_references_stand_below_a_line(world: Path) -> None:
    run_and_out = [f"run={world}/best/samples", f"out={world}/apart"]
    evaluate(world)
    output = evaluate(world, *run_and_out, "samples=4", "references=[base, orm]")
    rows = [
        line.split()[0]
        for line in output[output.index("Best of N") : output.index("pairs: share")].splitlines()
        if line.strip()
    ]
    start, end = rows.index("vote:orm"), rows.index("pass")
    assert {"majority", "prm:last", "vote:prm"} <= set(rows[:start])
    below = ["vote:orm", "orm", "likelihood:base:sum", "likelihood:base:min"]
    assert rows[start:end] == below and not set(below) & set(rows[:start])
    assert json.loads((world / "apart" / "best_of_n.json").read_text())["result"]["references"] == [
        "base",
        "orm",
    ]
    assert "references=['bass']: must be among the names of scorers and likelihood" in evaluate(
        world, *run_and_out, "samples=4", "references=[bass]", code=2
    )


def test_best_of_n_refuses_bad_input_before_it_samples(world: Path) -> None:
    (world / "empty").mkdir()
    for override, message in (
        (f"scorers={{x: {world / 'empty'}}}", "holds no prm.json"),
        (f"scorers={{base: {world}/prm}}", "both contain base"),
        ("exclude=[/nowhere]", "no such folder"),
        ("samples=0", "samples=0"),
    ):
        assert message in evaluate(world, f"out={world}/other", override, code=2)
    assert not (world / "other").exists()
