"""Annotations in other formats, and back: every field survives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mclabel.annotate.export import read_tasks
from mclabel.annotate.folder import Annotated, peoples_truth
from mclabel.annotate.storage import read_folder
from tests.annotate.test_gold import OWN, gold
from tests.annotate.test_measured import DOUBT, FIRST, GAVE_UP, RIGHT, ROWS, WRONG
from tests.support.annotated import annotated_folder
from tests.support.commands import run_verb


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> str:
    said = {
        ("ana", "solution-3"): {**WRONG, "note": "<b>\"\u202e \U0001f600", "ms": 1_234_567},
        ("ben", "solution-3"): FIRST,
        ("ana", "solution-4"): {**GAVE_UP, "at": 1_700_000_000_123},
        ("ana", "solution-5"): {**GAVE_UP, "finish": "bad_problem"},
        ("ana", "solution-6"): DOUBT,
        ("ana", "solution-0"): RIGHT,
        ("overseer", "solution-3"): RIGHT,
    }  # fmt: skip
    folder = tmp_path_factory.mktemp("said") / "out"
    people: dict[str, Any] = {"people": ("ana", "ben"), "overlap": 1.0, "gold_share": 0.3}
    annotated_folder(folder, ROWS, said, [*gold(0, 1, 2), OWN], **people)
    return str(folder)


def test_label_studio_holds_all_fields(out: str, tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    run_verb(["export", out, "--to", "label-studio", "-o", str(first)])
    back = str(tmp_path / "back")
    for _ in range(2):  # the second time changes nothing
        run_verb(["import", str(first / "data.json"), "--from", "label-studio", "-o", back])
    assert read_folder(back).items == read_folder(out).items
    first_, second_ = Annotated.read(out), Annotated.read(back)
    assert (first_.latest, first_.firsts) == (second_.latest, second_.firsts)
    assert peoples_truth(first_) == peoples_truth(second_)
    run_verb(["export", back, "--to", "label-studio", "-o", str(second)])
    assert (second / "data.json").read_bytes() == (first / "data.json").read_bytes()


THEIRS: dict[str, Any] = {
    "id": 7,
    "data": {"problem": "1 + 1?", "answer": "2", "steps": [{"text": "It is 3."}, {"text": "So"}]},
    "annotations": [
        {
            "id": 12, "completed_by": 3, "lead_time": 4.288, "was_cancelled": False,
            "created_at": "2021-03-09T22:16:08.728353Z",
            "result": [
                {"id": "x", "from_name": "step", "to_name": "steps", "type": "paragraphlabels",
                 "value": {"start": "0", "end": "0", "paragraphlabels": ["step"]}},
                {"id": "x", "from_name": "rating", "to_name": "steps", "type": "choices",
                 "value": {"start": "0", "end": "0", "choices": ["bad"]}},
            ],
        },
        {"id": 13, "completed_by": {"id": 4, "email": "a@b.c"}, "was_cancelled": True,
         "created_at": "2021-03-09T22:16:08Z", "lead_time": None, "result": []},
    ],
    "predictions": [],
}  # fmt: skip


def test_a_project_of_label_studio_itself_is_read(tmp_path: Path) -> None:
    path, out = tmp_path / "data.json", str(tmp_path / "out")
    path.write_text(json.dumps([THEIRS]), encoding="utf-8")
    ended = run_verb(["import", str(path), "--from", "label-studio", "-o", out])
    assert "2 opinions of 2 people on 1 solutions" in ended.output
    events = {event.person: event for event in read_folder(out).events}
    assert events["3"].first_error == 0 and events["3"].ms == 4288
    assert events["3"].at == 1_615_328_168_728 and events["a@b.c"].finish == "give_up"
    assert [one.first_error for one in peoples_truth(Annotated.read(out)).judged] == [0]
    path.write_text(json.dumps([{**THEIRS, "annotations": []}]), encoding="utf-8")
    ended = run_verb(["import", str(path), "--from", "label-studio", "-o", out], code=2)
    assert "holds other annotations" in ended.output


Places = tuple[str | int, ...]
FIRST_ANNOTATION: Places = ("annotations", 0)
RATING = (*FIRST_ANNOTATION, "result", 1, "value")


def changed_task(place: Places, value: object) -> dict[str, Any]:
    """Return a copy of the task with another value at a place."""
    task: dict[str, Any] = json.loads(json.dumps(THEIRS))
    *path, last = place
    part: Any = task
    for name in path:
        part = part[name]
    part[last] = value
    return task


def region(start: int, end: int, word: str, **offsets: int) -> dict[str, Any]:
    value = {"start": str(start), "end": str(end), "choices": [word], **offsets}
    return {"from_name": "rating", "to_name": "steps", "type": "choices", "value": value}


OTHER_TEMPLATE = {"from_name": "label", "to_name": "text", "value": {"labels": ["x"]}}
BAD_AND_GOOD = [*THEIRS["annotations"][0]["result"], region(0, 1, "good")]
SKIPPED_AND_DECIDED = THEIRS["annotations"][0] | {
    "was_cancelled": True,
    "result": [{"from_name": "finish", "value": {"choices": ["found_error"]}}],
}


@pytest.mark.parametrize(
    ("place", "value", "why"),
    [
        (("data", "answer"), None, "answer='None': must be a text"),
        (
            (*FIRST_ANNOTATION, "digest"),
            "other",
            "digest='other': is of other texts than those of solution",
        ),
        (
            (*FIRST_ANNOTATION, "result"),
            BAD_AND_GOOD,
            "step 0 is rated 'bad' and 'good' by two regions",
        ),
        (FIRST_ANNOTATION, SKIPPED_AND_DECIDED, "3 has skipped the task, which is give_up"),
        (
            (*FIRST_ANNOTATION, "result"),
            [OTHER_TEMPLATE],
            "from_name='label': must be one of step, rating, finish, note",
        ),
        (("data",), None, "data='None': must be an object with problem, answer and steps. Export"),
        (
            (*FIRST_ANNOTATION, "created_at"),
            "9021-03-09T22:16:08Z",
            "at=222513948968000: must be at most",
        ),
        ((*RATING, "start"), "2", "rates step 2, and there are steps 0 to 1"),
        ((*RATING, "choices"), ["great"], "ratings"),
        ((*FIRST_ANNOTATION, "created_at"), "yesterday", "yesterday"),
        (("meta",), {"item": {"probability": 0.0}}, "a probability in"),
        (("data", "steps"), "It is 3.", "steps='It is 3.': must be a list of steps"),
        (("data", "steps", 0, "text"), "\ud800", "valid Unicode"),
    ],
)
def test_what_is_no_task_is_named(tmp_path: Path, place: Places, value: object, why: str) -> None:
    path = tmp_path / "data.json"
    path.write_text(json.dumps([changed_task(place, value)]), encoding="utf-8")
    given = ["import", str(path), "--from", "label-studio", "-o", str(tmp_path / "out")]
    said = " ".join(run_verb(given, code=2).output.split())
    assert "task 1" in said and why in said, said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("regions", "ratings"),
    [
        ([region(0, 2, "good")], ("good", "good", "good")),
        ([region(0, 1, "good"), region(2, 2, "bad")], ("good", "good", "bad")),
        ([region(0, 0, "good"), region(1, 2, "bad")], ("good", "bad", "bad")),
        # the selection ends before the first character of step 2, and begins behind those of 0
        ([region(0, 0, "good"), region(0, 2, "bad", startOffset=1, endOffset=0)],
         ("good", "bad", None)),
    ],
)  # fmt: skip
def test_a_region_counts_for_all_steps_that_it_covers(
    tmp_path: Path, regions: list[dict[str, Any]], ratings: tuple[str | None, ...]
) -> None:
    task = json.loads(json.dumps(THEIRS))
    task["data"]["steps"] = ["a", "b", "c"]
    task["annotations"][0]["result"] = regions
    path = tmp_path / "data.json"
    path.write_text(json.dumps([task]), encoding="utf-8")
    assert {e.person: e.ratings for e in read_tasks(str(path)).events}["3"] == ratings


def test_annotations_of_one_person_are_revisions_in_their_order(tmp_path: Path) -> None:
    task = json.loads(json.dumps(THEIRS))
    second = {**task["annotations"][0], "id": 14, "created_at": "2020-03-09T22:16:08Z"}
    task["annotations"].append(second)
    path = tmp_path / "data.json"
    path.write_text(json.dumps([task]), encoding="utf-8")
    mine = [one for one in read_tasks(str(path)).events if one.person == "3"]
    assert [(one.revision, one.at > 1_600_000_000_000) for one in mine] == [(1, False), (2, True)]


def test_rows_of_prm800k_survive_with_all_fields(out: str, tmp_path: Path) -> None:
    run_verb(["export", out, "--to", "prm800k", "-o", str(tmp_path / "first")])
    rows = [json.loads(line) for line in (tmp_path / "first" / "data.jsonl").open()]
    assert {row["is_quality_control_question"] for row in rows} == {True, False}
    phase_1 = json.loads(json.dumps(rows[0]))
    alternatives = [
        {"text": "Else.", "rating": -1, "flagged": True},
        {"text": "Or.", "rating": 0, "flagged": None},
    ]
    phase_1 |= {"labeler": "x", "generation": 3, "is_initial_screening_question": True}
    phase_1["question"] |= {"problem": "Another?", "ground_truth_solution": "By hand."}
    phase_1["question"] |= {"pre_generated_steps": None, "pre_generated_verifier_score": 0.5}
    phase_1["label"]["total_time"] = 98_765
    phase_1["label"]["steps"] = [
        {"completions": alternatives, "human_completion": None, "chosen_completion": 1},
        {"completions": [], "human_completion": {"text": "Mine.", "rating": None,
         "source": "human", "flagged": False}, "chosen_completion": None},
    ]  # fmt: skip
    path = tmp_path / "both.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, phase_1]))
    back = str(tmp_path / "back")
    run_verb(["import", str(path), "--from", "prm800k", "-o", back])
    run_verb(["export", back, "--to", "prm800k", "-o", str(tmp_path / "second")])

    def texts(given: list[dict[str, Any]]) -> list[str]:
        return sorted(json.dumps(row, sort_keys=True) for row in given)

    again = [json.loads(line) for line in (tmp_path / "second" / "data.jsonl").open()]
    assert texts(again) == texts([row for row in [*rows, phase_1] if row["label"]["steps"]])
