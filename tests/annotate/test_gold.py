"""Gold solutions among those to annotate: their places, the rate of right answers, adjudication."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mclabel.annotate.export import export_annotations
from mclabel.annotate.folder import AnnotationFolder, collect_human_truth, summarise
from mclabel.annotate.gold import GoldLine, build_queues, read_gold_lines
from mclabel.core.errors import DataError
from tests.annotate.test_measured import FIRST, GAVE_UP, RIGHT, ROWS, WRONG
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
        ('{"solution_id": "a", "first_errors": []}', "must have the index of a step"),
        ('{"solution_id": "a", "first_errors": [-1]}', "first_errors.*-1"),
        ('{"solution_id": "a", "first_errors": [true]}', "first_errors"),
        ('{"solution_id": 3, "first_errors": [1]}', "solution_id=3"),
        ('{"problem": "a", "steps": ["b"], "first_errors": null}', "must have either solution_id"),
        (
            '{"problem": "a", "answer": "1", "steps": [], "first_errors": null}',
            "must have either solution_id",
        ),
        ('{"solution_id": "a", "first_errors": [1]}\n' * 2, "same solution as an earlier line"),
        ("", "has no lines"),
    ],
)
def test_a_line_that_is_no_gold_is_named(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "gold.jsonl"
    path.write_text(line, encoding="utf-8")
    with pytest.raises(DataError, match=why):
        read_gold_lines(path)


def test_gold_lies_unseen_among_the_others(tmp_path: Path) -> None:
    people = ("ana", "ben")
    lines = [*gold(*range(6)), OWN]
    annotated_folder(tmp_path / "out", ROWS, {}, lines, people=people, gold_share=0.25, overlap=0)
    annotated = AnnotationFolder.read(str(tmp_path / "out"))
    drawn_as_gold = [i for i in annotated.items if i.gold is not None and i.probability == 1]
    # all rows are drawn, but the gold of the seventh row has other texts
    assert len(drawn_as_gold) == 6
    ordered = build_queues(annotated.items, annotated.settings)
    others = {person: [i.id for i in annotated.items if i.gold is None and person in i.people]
              for person in people}  # fmt: skip
    hidden = {person: [i.id for i in annotated.items if i.gold is not None and person in i.people]
              for person in people}  # fmt: skip
    for person in people:
        assert len(hidden[person]) == round(len(others[person]) / 3) > 0
        assert [name for name in ordered[person] if name in others[person]] == others[person]
        assert sorted(ordered[person]) == sorted(others[person] + hidden[person])
    assert any(not set(ordered[name][: len(hidden[name])]) <= set(hidden[name]) for name in people)
    assert set(hidden["ana"]) != set(hidden["ben"])


def test_a_first_opinion_on_gold_is_the_one_that_counts(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"people": ("ana", "ben"), "gold_share": 0.2}
    items = annotated_folder(tmp_path / "out", ROWS, {}, gold(0, 1, 2), **settings, overlap=0)
    opinions = {"ana": (WRONG, RIGHT), "ben": (RIGHT, WRONG)}
    hidden = [(i, person) for person in opinions for i in items if i.gold and person in i.people]
    assert [person for _, person in hidden] == ["ana", "ana", "ben", "ben"]
    contents = [
        {
            **opinion,
            "person": person,
            "solution": item.id,
            "digest": item.digest,
            "revision": revision,
        }
        for item, person in hidden
        for revision, opinion in enumerate(opinions[person], 1)
    ]
    add_events(tmp_path / "out", [event(n, **content) for n, content in enumerate(contents)])
    annotated = AnnotationFolder.read(str(tmp_path / "out"))
    ana, ben = summarise(annotated).people
    assert (ana.hidden.num_right, ben.hidden.num_right) == (2, 0)
    assert ana.hidden.low == pytest.approx(0.025**0.5)  # Clopper-Pearson interval for 2 of 2
    assert "  hidden gold: 2 of 2 right, 1.00 [0.16, 1.00]" in list(summarise(annotated).lines())
    truth = {solution.id: solution for solution in collect_human_truth(annotated).judged}
    assert truth["solution-0"].first_error == 1  # the gold overrides all annotations
    export_annotations(str(tmp_path / "out"), "prm800k", str(tmp_path / "data"))
    rows = [json.loads(line) for line in (tmp_path / "data" / "data.jsonl").open()]
    assert [row["is_quality_control_question"] for row in rows] == [True] * 4


def test_the_overseer_settles_what_people_differ_on(tmp_path: Path) -> None:
    opinions = {
        ("ana", "solution-0"): WRONG, ("ben", "solution-0"): FIRST,
        ("ana", "solution-1"): WRONG, ("ben", "solution-1"): WRONG,
        ("ana", "solution-2"): WRONG, ("ben", "solution-2"): GAVE_UP,
        ("overseer", "solution-0"): RIGHT,
    }  # fmt: skip
    annotated_folder(tmp_path / "out", ROWS, opinions, people=("ana", "ben"), overlap=1.0)
    annotated = AnnotationFolder.read(str(tmp_path / "out"))
    # the unsettled one comes first
    assert [item.id for item, _ in annotated.disagreements] == ["solution-2", "solution-0"]
    assert {
        solution.id: (solution.first_error, solution.other_first_errors)
        for solution in collect_human_truth(annotated).judged
    } == {
        "solution-0": (None, frozenset()),
        "solution-1": (1, frozenset([1])),
        "solution-2": (1, frozenset()),
    }


@pytest.mark.slow
def test_gold_over_the_page(tmp_path: Path) -> None:
    run = plain_run(tmp_path / "run")
    path = tmp_path / "gold.jsonl"
    problem_and_steps = {"problem": "1 + 1?", "answer": "2", "steps": ["It is 3.", "So 3."]}
    lines = [
        {"solution_id": "solution-0", "first_errors": None},
        {**problem_and_steps, "first_errors": [0, 1]},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    out = tmp_path / "out"
    begun = ["--people", "ana,ben", "--gold-share", "0.5", "--gold", str(path)]
    with AnnotateProcess(run, "-o", str(out), *begun) as page:
        for person in ("ana", "ben"):
            state = page.get("/api/state", person)
            hidden = {
                item_id for item_id in state["items"] if item_id not in ("solution-1", "solution-2")
            }
            assert len(hidden) == 1 and not state["shows_run"]
            (hidden_id,) = hidden
            right = ["good", "good"] if hidden_id == "solution-0" else ["bad", None]
            wrong = ["good", "bad"] if hidden_id == "solution-0" else ["good", "good"]
            ratings = right if person == "ana" else wrong
            assert page.post(page.opinion(person, hidden_id, ratings), person)[0] == 200
            assert (
                page.ask("GET", f"/api/labels?id={hidden_id}", cookie=page.cookie(person))[0] == 403
            )
        assert "hidden" not in page.get("/summary", "ana")["people"][0]
        people = page.get("/summary", "overseer")["people"]
        assert [summary["hidden"]["num_right"] for summary in people] == [1, 0]
        for path_ in ("/overview", "/api/overview"):
            assert page.ask("GET", path_)[0] == 403
            status, _, body = page.ask("GET", path_, cookie=page.cookie("ana"))
            assert status == 403 and "only for overseer" in body
        mine = page.opinion("overseer", "solution-1", ["good", "bad", None])
        for change, person, status in (
            ({}, "ana", 403),
            ({"person": "ana"}, "overseer", 403),
            ({"solution": "solution-0"}, "overseer", 404),  # gold solutions are not adjudicated
            ({}, "overseer", 200),
        ):
            assert page.post({**mine, **change}, person)[0] == status
        overview = page.get("/api/overview", "overseer")
        assert [summary["hidden"]["num"] for summary in overview["summary"]["people"]] == [1, 1]
    assert "  hidden gold: 0 of 1 right, 0.00 [0.00, 0.97]" in page.said
    reserved = run_verb(["annotate", run, "-o", str(out), "--people", "overseer"], code=2)
    assert "this name is reserved" in reserved.output
