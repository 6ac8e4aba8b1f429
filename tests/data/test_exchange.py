"""Exchange formats of other projects: exact rows, and round trips."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mclabel import jobs
from mclabel.core.errors import DataError, ShardError
from mclabel.core.records import Outcome
from mclabel.data.exchange import FORMATS
from mclabel.data.exchange.formats import (
    LabeledTexts,
    convert_to_labeled_texts,
    convert_to_solution,
    find_format,
    read_row,
)
from mclabel.data.readers.judged import read_processbench
from mclabel.prm.examples.targets import compute_step_targets
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from tests.support.commands import run_verb
from tests.support.labelled import arith_rows, write_run
from tests.support.own_package import write_module

TWO = LabeledTexts(
    problem="What is 2 + 2 * 3?",
    steps=("2 * 3 = 6", "2 + 6 = 9"),
    ratings=(1.0, 0.0),
    answer="8",
    prediction="9",
    right=False,
)


def prm800k_step(text: str, rating: int, chosen: int | None) -> dict[str, object]:
    completions = [{"text": text, "rating": rating, "flagged": False}]
    return {"completions": completions, "human_completion": None, "chosen_completion": chosen}


WRITTEN: dict[str, dict[str, object]] = {
    "trl": {
        "prompt": "What is 2 + 2 * 3?",
        "completions": ["2 * 3 = 6", "2 + 6 = 9"],
        "labels": [True, False],
    },
    "math-shepherd": {
        "input": "What is 2 + 2 * 3? Step 1: 2 * 3 = 6 ки\nStep 2: 2 + 6 = 9 ки",
        "label": "What is 2 + 2 * 3? Step 1: 2 * 3 = 6 +\nStep 2: 2 + 6 = 9 -",
        "task": "mclabel",
    },
    "rlhflow": {
        "conversations": [
            {"role": "user", "content": "What is 2 + 2 * 3? Step 1: 2 * 3 = 6"},
            {"role": "assistant", "content": "+"},
            {"role": "user", "content": "Step 2: 2 + 6 = 9"},
            {"role": "assistant", "content": "-"},
        ]
    },
    "prm800k": {
        "is_quality_control_question": False,
        "is_initial_screening_question": False,
        "question": {
            "problem": "What is 2 + 2 * 3?",
            "ground_truth_solution": None,
            "ground_truth_answer": "8",
            "pre_generated_steps": ["2 * 3 = 6", "2 + 6 = 9"],
            "pre_generated_answer": "9",
            "pre_generated_verifier_score": None,
        },
        "label": {
            "steps": [prm800k_step("2 * 3 = 6", 1, 0), prm800k_step("2 + 6 = 9", -1, None)],
            "total_time": 0,
            "finish_reason": "found_error",
        },
    },
    "processbench": {
        "id": "s-1",
        "generator": "mclabel",
        "problem": "What is 2 + 2 * 3?",
        "steps": ["2 * 3 = 6", "2 + 6 = 9"],
        "final_answer_correct": False,
        "label": 1,
    },
}
"""Expected rows by format. PRM800K rows lack the labeller, the time and the generation."""


@pytest.mark.parametrize("name", WRITTEN)
def test_rows_of_each_format(name: str) -> None:
    row = find_format(name).write(replace(TWO, id="s-1"))
    assert row is not None
    more = {"labeler", "timestamp", "generation"} if name == "prm800k" else set()
    assert row.keys() - WRITTEN[name].keys() == more
    assert {key: row[key] for key in WRITTEN[name]} == WRITTEN[name]


def test_every_solution_of_a_processbench_export_has_an_id(tmp_path: Path) -> None:
    """Solutions get unique ids although their problems share an `id`."""
    rows = [
        replace(row, problem=replace(row.problem, meta={**row.problem.meta, "id": "shared"}))
        for row in arith_rows(8)
    ]
    jobs.export_run(write_run(tmp_path / "run", rows), "processbench", str(tmp_path / "out"))
    data = tmp_path / "out" / "data.jsonl"
    written = [json.loads(line)["id"] for line in data.read_text().splitlines()]
    assert sorted(written) == sorted(row.solution.id for row in rows)
    assert [solution.id for solution in read_processbench(data)] == written
    nameless = find_format("processbench").write(TWO)
    assert nameless is not None and len(nameless["id"]) == 16


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1)
SOLUTIONS = st.lists(st.tuples(TEXT, st.booleans()), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(problem=TEXT, solution=SOLUTIONS, to=st.sampled_from(list(FORMATS)))
def test_what_a_format_holds_comes_back(
    problem: str, solution: list[tuple[str, bool]], to: str
) -> None:
    if any("ки" in text or "Step " in text for text in (problem, *(s for s, _ in solution))):
        return
    problem = problem.strip() or "?"
    good = [sound for _, sound in solution]
    if to in ("prm800k", "processbench"):  # no step is labelled good after a bad one
        good = [all(good[: i + 1]) for i in range(len(good))]
    texts = LabeledTexts(
        problem=problem,
        steps=tuple(step.strip() or "." for step, _ in solution),
        ratings=tuple(map(float, good)),
        right=good[-1],
    )
    row = find_format(to).write(texts)
    assert row is not None
    (back,) = read_row(find_format(to), json.loads(json.dumps(row)), to)
    assert isinstance(back, LabeledTexts)
    assert (back.problem, back.steps) == (texts.problem, texts.steps)
    end = len(good)
    if to in ("prm800k", "processbench") and False in good:
        end = good.index(False) + 1
    assert back.ratings == (*texts.ratings[:end], *[None] * (len(good) - end))
    # converted to our own row, it exports to the same row again
    ours = convert_to_labeled_texts(
        convert_to_solution(back, sample_index=0, outcome=Outcome.UNGRADED)
    )
    assert ours.steps == texts.steps and ours.ratings == back.ratings


def test_of_prm800k_the_path_and_the_alternatives_are_read() -> None:
    row = {
        "question": {"problem": "p", "ground_truth_answer": "4", "pre_generated_steps": None},
        "label": {
            "steps": [
                {
                    "completions": [
                        {"text": "a", "rating": 1, "flagged": False},
                        {"text": "b", "rating": -1, "flagged": False},
                    ],
                    "human_completion": None,
                    "chosen_completion": 0,
                },
                {
                    "completions": [{"text": "c", "rating": -1, "flagged": None}],
                    "human_completion": {"text": "h", "source": None, "corrected_rating": None},
                    "chosen_completion": None,
                },
                {
                    "completions": [{"text": "d", "rating": 0, "flagged": None}],
                    "human_completion": None,
                    "chosen_completion": 0,
                },
            ],
            "finish_reason": "solution",
        },
    }
    path, *others = find_format("prm800k").read(row)
    assert path.steps == ("a", "h", "d") and path.ratings == (1.0, 1.0, 0.5)
    assert [(o.steps, o.ratings) for o in others] == [
        (("b",), (0.0,)),
        (("a", "c"), (None, 0.0)),
    ]
    neutral = convert_to_solution(path, sample_index=0, outcome=Outcome.UNGRADED)
    assert compute_step_targets(neutral, "neutral") == (1.0, 1.0, 0.5)
    assert compute_step_targets(neutral, "hard") == (1.0, 1.0, 1.0)
    assert find_format("prm800k").write(convert_to_labeled_texts(neutral)) == row
    relabelled = replace(neutral, problem=replace(neutral.problem, meta={}))
    again = find_format("prm800k").write(convert_to_labeled_texts(relabelled))
    assert again is not None
    assert [s["completions"][0]["rating"] for s in again["label"]["steps"]] == [1, 1, 0]


def test_the_same_import_twice_is_one_and_another_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(find_format("trl").write(TWO)) + "\n")
    out = str(tmp_path / "run")
    first = jobs.import_file(str(file), "trl", out)
    assert jobs.import_file(str(file), "trl", out) == first
    assert len(list(read_labels(Store(out)))) == 1
    file.write_text(
        json.dumps({**(find_format("trl").write(TWO) or {}), "labels": [True, True]}) + "\n"
    )
    with pytest.raises(ShardError, match="another configuration"):
        jobs.import_file(str(file), "trl", out)


@pytest.mark.parametrize(
    ("source", "row", "fault"),
    [
        ("trl", {"prompt": "p", "completions": ["a"], "labels": [0.5]}, "must be booleans"),
        ("trl", {"prompt": "p", "completions": ["a", "b"], "labels": [True]}, "2 steps and 1"),
        ("math-shepherd", {"input": "p Step 1: a", "label": "p Step 1: a +"}, "does not end in"),
        ("math-shepherd", {"input": "p a ки", "label": "p a +"}, "no 'Step 1: '"),
        ("rlhflow", {"conversations": [{"role": "user", "content": "x"}]}, "alternate"),
        (
            "rlhflow",
            {
                "conversations": [
                    {"role": "user", "content": "Find 3 + 4. We add."},
                    {"role": "assistant", "content": "+"},
                ]
            },
            "separates the problem from its first step",
        ),
        ("processbench", {"problem": "p", "steps": ["a"], "label": 1}, "label=1: must be"),
        ("prm800k", {"question": {}}, "KeyError 'label'"),
    ],
)
def test_a_row_of_no_such_format_is_named(
    source: str, row: dict[str, object], fault: str, tmp_path: Path
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row) + "\n")
    with pytest.raises(DataError, match=f"line 1: not a row of {source}: .*{fault}"):
        jobs.import_file(str(file), source, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_marks_inside_texts_are_refused() -> None:
    bad = LabeledTexts(problem="a ки b", steps=("x",), ratings=(1.0,))
    with pytest.raises(DataError, match="uses as a mark"):
        find_format("math-shepherd").write(bad)


MINE = """
from mclabel.data.exchange.formats import make_labeled_texts


class Verdicts:
    lost_information = "all but texts and labels is lost"
    stops_at_unlabeled_step = False

    def write(self, texts):
        if None in texts.ratings:
            return None
        return {"task": texts.problem, "lines": list(texts.steps), "good": list(texts.ratings)}

    def read(self, row):
        yield make_labeled_texts(row["task"], row["lines"], row["good"])


class Unprintable(Verdicts):
    def write(self, texts):
        return {"steps": {1, 2}}


class HalfMade:
    lost_information = ""


def no_class():
    pass
"""


@pytest.fixture
def format_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of an importable package that defines its own formats."""
    return write_module(tmp_path, MINE, monkeypatch)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        (
            "trk",
            "trk: is not a format. Did you mean trl? Choose one of parquet, trl, math-shepherd,",
        ),
        (
            "{format_package}:HalfMade",
            "is not an exchange format, because it lacks write, read, stops_at_unlabeled_step",
        ),
        (
            "{format_package}:no_class",
            "is a function, must be a class with write, read, lost_information and "
            "stops_at_unlabeled_step",
        ),
        ("{format_package}:Missing", "cannot be imported (AttributeError"),
        (
            "{format_package}:Unprintable",
            "its method write returned a row that is not a JSON object",
        ),
    ],
)
def test_what_is_no_format_is_refused(
    name: str, fault: str, format_package: str, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run", arith_rows(2))
    name = name.format(format_package=format_package)
    command = ["export", run, "--to", name, "-o", str(tmp_path / "out")]
    assert fault in " ".join(run_verb(command, code=2).output.split())
    assert not [*(tmp_path / "out").glob("*")]
    if "write" not in fault.split(":")[0] and "Unprintable" not in name:
        file = tmp_path / "x.jsonl"
        file.write_text("{}")
        run_verb(["import", str(file), "--from", name, "-o", str(tmp_path / "new")], code=2)
        assert not (tmp_path / "new").exists()
