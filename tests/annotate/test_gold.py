"""Gold among what people label: where it lies, whom it admits, and what the overseer sees of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scipy.special import bdtrc

from mclabel.annotate.folder import Annotated, peoples_truth, summarise
from mclabel.annotate.gold import GoldLine, num_needed, read_gold
from mclabel.annotate.items import Settings
from mclabel.core.errors import DataError
from tests.annotate.test_measured import DOUBT, FIRST, GAVE_UP, RIGHT, ROWS, WRONG
from tests.support.annotated import AnnotateProcess, add_events, annotated_folder, event
from tests.support.commands import run_verb
from tests.support.shown import plain_run

OWN = GoldLine(
    first_errors=(0, 1), problem="1 + 1?", answer="2",
    steps=("It is 3.", "So 3."),
)  # fmt: skip


def gold(*numbers: int, errors: tuple[int | None, ...] = (1,)) -> list[GoldLine]:
    return [GoldLine(first_errors=errors, solution_id=f"solution-{n}") for n in numbers]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "gold.jsonl"),
        ("[]", "must be an object"),
        ('{"solution_id": "a"}', "first_errors: "),
        ('{"solution_id": "a", "first_errors": []}', "must name a step"),
        ('{"solution_id": "a", "first_errors": [-1]}', "first_errors.*-1"),
        ('{"solution_id": "a", "first_errors": [true]}', "first_errors"),
        ('{"solution_id": 3, "first_errors": [1]}', "solution_id=3"),
        ('{"problem": "a", "steps": ["b"], "first_errors": null}', "must have solution_id, or"),
        (
            '{"problem": "a", "answer": "1", "steps": [], "first_errors": null}',
            "must have solution_id, or",
        ),
        ('{"solution_id": "a", "first_errors": [1]}\n' * 2, "same solution as an earlier line"),
        ("", "holds no lines"),
    ],
)
def test_a_line_that_is_no_gold_is_named(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "gold.jsonl"
    path.write_text(line, encoding="utf-8")
    with pytest.raises(DataError, match=why):
        read_gold(path)


def test_gold_lies_unseen_among_the_others_behind_the_screening(tmp_path: Path) -> None:
    people = ("ana", "ben")
    lines = [*gold(*range(6)), OWN]
    annotated_folder(
        tmp_path / "out", ROWS, {}, lines, people=people, screening=3, gold_share=0.25, overlap=0
    )
    annotated = Annotated.read(str(tmp_path / "out"))
    drawn_as_gold = [i for i in annotated.items if i.gold is not None and i.probability == 1]
    assert len(drawn_as_gold) == 6  # all rows are drawn; the seventh has texts of its own
    queues = annotated.queues
    others = {person: [i.id for i in annotated.items if i.gold is None and person in i.people]
              for person in people}  # fmt: skip
    for person in people:
        queue = queues[person]
        num_own = len(others[person])
        assert len(queue.screening) == 3 and queue.ids[:3] == queue.screening
        assert len(queue.hidden) == round(num_own / 3)
        assert len(queue.ids) == len(set(queue.ids)) == 3 + num_own + len(queue.hidden)
        assert [one for one in queue.ids if one in others[person]] == others[person]
    assert queues["ana"].screening != queues["ben"].screening


def test_as_many_must_be_right_as_the_share_says() -> None:
    assert num_needed(Settings(id="", run="", run_id="", screening=4, admit=0.75)) == 3
    needed = num_needed(Settings(id="", run="", run_id="", screening=30, admit=0.75))
    assert needed == 23
    shown = {p: round(float(bdtrc(needed - 1, 30, p)), 3) for p in (0.6, 0.75, 0.9)}
    assert shown == {0.6: 0.044, 0.75: 0.514, 0.9: 0.992}  # as docs/annotate.md has them


def test_first_opinions_admit_and_who_is_not_admitted_does_not_count(tmp_path: Path) -> None:
    people, lines = ("ana", "ben", "cy"), [*gold(0, 1), OWN]
    settings: dict[str, Any] = {"people": people, "screening": 2, "admit": 1.0, "gold_share": 0.0}
    annotated_folder(tmp_path / "out", ROWS, {}, lines, **settings, overlap=0)
    out = str(tmp_path / "out")
    annotated = Annotated.read(out)
    items = {item.id: item for item in annotated.items}
    events = []

    def say(person: str, one: str, said: dict[str, Any], number: int, revision: int = 1) -> None:
        ratings = (said["ratings"] * 2)[: len(items[one].steps)]
        named = {"person": person, "solution": one, "digest": items[one].digest}
        events.append(event(number, revision=revision, **{**said, **named, "ratings": ratings}))

    number = 0
    for person, said in (("ana", WRONG), ("ben", RIGHT)):
        for one in annotated.queues[person].screening:
            is_own = items[one].probability is None
            say(person, one, FIRST if is_own and said is WRONG else said, number)
            number += 1
    for one in annotated.queues["ben"].screening:  # a second try changes nothing
        say("ben", one, WRONG, number, revision=2)
        number += 1
    for person in ("ana", "ben"):
        say(person, annotated.queues[person].ids[-1], RIGHT, number)
        number += 1
    add_events(tmp_path / "out", events)
    annotated = Annotated.read(out)
    standings = annotated.standings
    assert [standings[one].admitted for one in people] == [True, False, None]
    assert standings["ana"].screening.num_right == 2 and standings["ben"].screening.num_right == 0
    assert standings["ana"].screening.low == pytest.approx(0.025**0.5)  # Clopper-Pearson of 2 of 2
    lines_said = list(summarise(annotated).lines())
    assert "  screening: 2 of 2 right, 1.00 [0.16, 1.00]; admitted" in lines_said
    truth = {one.id: one for one in peoples_truth(Annotated.read(out)).judged}
    assert set(truth) == {"solution-0", "solution-1", annotated.queues["ana"].ids[-1]}
    assert truth["solution-0"].first_error == 1  # the gold, whoever said what

    def rows(*arguments: str) -> list[dict[str, Any]]:
        data = tmp_path / f"data{len(arguments)}"
        run_verb(["export", out, "--to", "prm800k", "-o", str(data), *arguments])
        return [json.loads(text) for text in (data / "data.jsonl").read_text().splitlines()]

    assert [row["labeler"] for row in rows()] == ["ana"]
    asked = rows("--screening")
    assert sum(row["is_initial_screening_question"] for row in asked) == 4
    assert not any(row["is_quality_control_question"] for row in asked)


def test_the_overseer_settles_what_people_differ_on(tmp_path: Path) -> None:
    said = {
        ("ana", "solution-0"): WRONG, ("ben", "solution-0"): FIRST,
        ("ana", "solution-1"): WRONG, ("ben", "solution-1"): WRONG,
        ("ana", "solution-2"): WRONG, ("ben", "solution-2"): GAVE_UP,
        ("overseer", "solution-0"): RIGHT,
    }  # fmt: skip
    annotated_folder(tmp_path / "out", ROWS, said, people=("ana", "ben"), overlap=1.0)
    out = str(tmp_path / "out")
    differ = Annotated.read(out).disagreements
    assert [item.id for item, _ in differ] == ["solution-2", "solution-0"]  # the open one first
    truth = {
        one.id: (one.first_error, one.also) for one in peoples_truth(Annotated.read(out)).judged
    }
    assert truth == {
        "solution-0": (None, frozenset()),
        "solution-1": (1, frozenset([1])),
        "solution-2": (1, frozenset()),
    }


def test_rows_of_prm800k_survive_with_all_fields(tmp_path: Path) -> None:
    said = {
        ("ana", "solution-3"): {**WRONG, "note": "<b>\"\u202e \U0001f600", "ms": 1_234_567},
        ("ben", "solution-3"): FIRST,
        ("ana", "solution-4"): {**GAVE_UP, "at": 1_700_000_000_123},
        ("ana", "solution-5"): {**GAVE_UP, "finish": "bad_problem"},
        ("ana", "solution-6"): DOUBT,
        ("ana", "solution-0"): RIGHT,
        ("overseer", "solution-3"): RIGHT,
    }  # fmt: skip
    people: dict[str, Any] = {"people": ("ana", "ben"), "overlap": 1.0, "gold_share": 0.3}
    annotated_folder(tmp_path / "out", ROWS, said, [*gold(0, 1, 2), OWN], **people)
    run_verb(["export", str(tmp_path / "out"), "--to", "prm800k", "-o", str(tmp_path / "first")])
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


@pytest.mark.slow
def test_screening_over_the_page(tmp_path: Path) -> None:
    run = plain_run(tmp_path / "run")
    path = tmp_path / "gold.jsonl"
    own = {"problem": "1 + 1?", "answer": "2", "steps": ["It is 3.", "So 3."]}
    lines = [{"solution_id": "solution-0", "first_errors": None}, {**own, "first_errors": [0, 1]}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    out = tmp_path / "out"
    begun = ["--people", "ana,ben", "--screening", "2", "--admit", "1", "--gold", str(path)]
    with AnnotateProcess(run, "-o", str(out), *begun) as page:
        answers = {"solution-0": ["good", "good"]}
        for person in ("ana", "ben"):
            state = page.get("/api/state", person)
            assert state["screening"] and len(state["items"]) == 2 and not state["shows_run"]
            cookie = page.cookie(person)
            assert page.ask("GET", "/api/item?id=solution-1", cookie=cookie)[0] in (403, 404)
            for one in state["items"]:
                assert set(page.get(f"/api/item?id={one}", person)) == {
                    "id", "problem", "answer", "steps", "digest"
                }  # fmt: skip
                said = answers.get(one, ["good", "bad"]) if person == "ana" else ["bad", None]
                assert page.post(page.opinion(person, one, said), person)[0] == 200
                assert page.ask("GET", f"/api/labels?id={one}", cookie=cookie)[0] == 403
        state = page.get("/api/state", "ana")
        assert state["notice"] is None and not state["screening"] and len(state["items"]) > 2
        refused = page.get("/api/state", "ben")
        assert "differ too often" in refused["notice"] and len(refused["items"]) == 2
        again = {**page.opinion("ana", state["items"][-1], ["good", "good"]), "person": "ben"}
        assert page.post(again, "ben")[0] in (403, 404)
        summary = page.get("/summary", "ana")
        assert "hidden" not in summary["people"][0] and "screening" not in summary["people"][0]
        assert page.get("/summary", "overseer")["people"][0]["screening"]["num_right"] == 2
        for path_ in ("/overview", "/api/overview"):
            assert page.ask("GET", path_)[0] == 403
            status, _, body = page.ask("GET", path_, cookie=page.cookie("ana"))
            assert status == 403 and "overseer alone" in body
            answered = page.ask("GET", path_, cookie=page.cookie("overseer"), host="evil.example")
            assert answered[0] == 421
            assert page.ask("POST", path_, {}, cookie=page.cookie("overseer"))[0] == 405
        mine = page.opinion("overseer", "solution-1", ["good", "bad", None])
        assert page.post(mine, "ana")[0] == 403
        assert page.post({**mine, "person": "ana"}, "overseer")[0] == 403
        assert page.post({**mine, "solution": "solution-0"}, "overseer")[0] == 404  # it is gold
        assert page.post(mine, "overseer") == (200, '{"new":true}')
        found = page.get("/api/overview", "overseer")
        assert [one["admitted"] for one in found["summary"]["people"]] == [True, False]
        assert found["needed"] == 2
    assert "  screening: 1 of 2 right, 0.50 [0.01, 0.99]; not admitted" in page.said
    with AnnotateProcess(run, "-o", str(out)) as page:  # gold needs not be given again
        assert "differ too often" in page.get("/api/state", "ben")["notice"]
    other = subprocess.run(
        [sys.executable, "-m", "mclabel", "annotate", run, "-o", str(out), "--people", "overseer"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert other.returncode == 2 and "the name of whoever runs this" in other.stderr
