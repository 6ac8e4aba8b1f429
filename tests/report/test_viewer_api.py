"""The data that the viewer's server returns, and the clients that may request it."""

from __future__ import annotations

import http.client
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mclabel.core.records import Outcome
from mclabel.report.viewer.listing import MAX_PART, MAX_PART_STEPS
from mclabel.run.kinds import find_runs, read_run_identity
from mclabel.run.shards.manifest import SemanticConfig, claim_manifest
from mclabel.run.shards.store import Store
from tests.support.shown import (
    CONFIG,
    HOSTILE,
    hostile_run,
    long_run,
    plain_run,
    rollouts_of,
    solution,
    twin_run,
    write_run,
)
from tests.support.viewer_process import ViewerHere


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewerHere]:
    folder = tmp_path_factory.mktemp("plain")
    second = write_run(
        folder / "two",
        [solution(1, ["We add.\n", "That makes 5.\n", "So \\boxed{5}."], [0, 0, 0])],
        None,
    )
    with ViewerHere(plain_run(folder / "one"), second) as viewer:
        viewer.wait_for(3)
        yield viewer


@pytest.mark.parametrize(
    ("question", "expected_ids"),
    [
        ({}, ["0", "1", "2"]),
        ({"outcome": "wrong"}, ["1"]),
        ({"error": "none"}, ["0"]),
        ({"error": "any"}, ["1", "2"]),
        ({"error": "1"}, ["1", "2"]),
        ({"mark": "truncated"}, ["2"]),
        ({"mark": "runs"}, ["1"]),
        ({"mark": "lucky"}, []),
        ({"width": "0.6"}, ["0", "1", "2"]),
        ({"width": "0.7"}, ["1", "2"]),
        ({"level": "hard"}, ["1", "2"]),
        ({"answer_type": "fraction"}, ["2"]),
        ({"q": "ZEBRA"}, ["2"]),
        ({"q": "makes 5"}, ["1"]),
        ({"q": '"makes 5."'}, ["1"]),
        ({"q": '"5 makes"'}, []),
        ({"q": "%"}, []),
        ({"q": "solution-2"}, ["2"]),
        ({"sort": "fall"}, ["1", "2", "0"]),
        ({"sort": "steps"}, ["1", "0", "2"]),
        ({"outcome": "wrong", "q": "zebra"}, []),
    ],
    ids=str,
)
def test_filters_and_search(
    plain: ViewerHere, question: dict[str, str], expected_ids: list[str]
) -> None:
    page = plain.get("solutions", **question)
    assert [row["solution_id"].removeprefix("solution-") for row in page["rows"]] == expected_ids
    assert page["total"] == len(expected_ids)


def test_counts_name_what_can_be_filtered(plain: ViewerHere) -> None:
    assert plain.get("state")["counts"] == {
        "total": 3,
        "marks": {
            **dict.fromkeys(("lucky", "truth", "unknown", "undecided", "unkept"), 0),
            "runs": 1,
            "truncated": 1,
        },
        "errors": {"any": 2, "none": 1, "undecided": 0},
        "by": {
            "outcome": {"right": 1, "truncated": 1, "wrong": 1},
            "first_error": {"1": 2},
            "answer_type": {"integer": 2, "fraction": 1},
            "level": {"hard": 2, "easy": 1},
        },
    }
    assert plain.get("state", run=1)["counts"]["total"] == 1


@pytest.mark.parametrize(
    ("question", "sizes", "outcomes", "errors", "values"),
    [
        # values of all steps but the last: 1; 0.75 and 0; 0.25
        (
            {},
            (3, 3, 7),
            {"right": 1, "wrong": 1, "truncated": 1},
            {"1": 2, "none": 1},
            [1, 0, 1, 0, 0, 0, 0, 1, 0, 1],
        ),
        (
            {"level": "hard", "q": "zebra", "sort": "fall"},
            (1, 1, 2),
            {"truncated": 1},
            {"1": 1},
            [0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
        ),
        ({"q": "nobody says this"}, (0, 0, 0), {}, {}, [0] * 10),
    ],
)
def test_what_is_found_is_summed_up(
    plain: ViewerHere,
    question: dict[str, str],
    sizes: tuple[int, int, int],
    outcomes: dict[str, int],
    errors: dict[str, int],
    values: list[int],
) -> None:
    assert plain.get("summary", **question) == {
        **dict(zip(("total", "num_problems", "num_steps"), sizes, strict=True)),
        **{"outcomes": outcomes, "errors": errors, "values": values},
        **{"num_with_truth": 0, "truths": {}},
    }


def test_steps_without_a_value_and_late_errors_are_counted_apart(tmp_path: Path) -> None:
    write_run(
        tmp_path / "late",
        [solution(9, [f"{i}\n" for i in range(20)], [4] * 15 + [0] * 5, outcome=Outcome.WRONG)],
        None,
    )
    with ViewerHere(twin_run(tmp_path / "twins"), str(tmp_path / "late")) as viewer:
        viewer.wait_for(3)
        assert sum(viewer.get("summary")["values"]) == 4
        assert viewer.get("summary", run=1)["errors"] == {"12": 1}
        assert [
            (s["solution_id"], s["sample_index"])
            for s in viewer.get("solution", id="solution-1")["samples"]
        ] == [
            ("solution-0", 0),
            ("solution-1", 1),
        ]


def test_labels_of_what_is_found_are_given_in_parts(tmp_path: Path) -> None:
    steps = [f"{i}\n" for i in range(15)]
    rows = [solution(n, steps, [4] * 15) for n in range(MAX_PART + 500)]
    with ViewerHere(write_run(tmp_path / "run", rows, None)) as viewer:
        viewer.wait_for(len(rows))
        seen: list[str] = []
        for _ in range(2):
            part = viewer.get("export", offset=len(seen), sort="steps")
            assert part["total"] == len(rows) and 0 < len(part["rows"]) <= MAX_PART
            assert sum(len(row["values"]) for row in part["rows"]) <= MAX_PART_STEPS
            seen += [row["solution_id"] for row in part["rows"]]
        assert seen == [f"solution-{n}" for n in range(len(rows))]
        assert viewer.get("export", offset=len(rows))["rows"] == []


def test_an_exported_row(plain: ViewerHere) -> None:
    assert plain.get("export", outcome="wrong")["rows"] == [
        {
            "problem_id": "problem-1",
            "solution_id": "solution-1",
            "sample_index": 0,
            "outcome": "wrong",
            "first_error": 1,
            "decided": True,
            "hard": [True, False, False],
            "values": [0.75, 0.0, 0.0],
        }
    ]


def test_a_run_is_known_by_its_manifest_wherever_it_lies(tmp_path: Path) -> None:
    first, second = Path(plain_run(tmp_path / "one")), Path(plain_run(tmp_path / "other"))
    copy = shutil.copytree(first, tmp_path / "copy")
    runs = find_runs([str(folder) for folder in (first, copy, second)])
    assert [read_run_identity(run) for run in runs] == ["one", "one", "other"]
    (copy / "run.json").write_text('{"config": {}, "id": "<script>"}')
    assert read_run_identity(runs[1]) != "<script>"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", ["/api/export", "/api/summary", "/api/state", "/"])
def test_nothing_but_looking_is_allowed(plain: ViewerHere, method: str, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", plain.port)
    connection.request(method, path, body=b"{}", headers={"cookie": plain.cookie})
    assert connection.getresponse().status == 405


def test_a_solution_a_step_and_its_place(plain: ViewerHere) -> None:
    row = plain.get("solution", id="solution-1")
    assert [step["value"] for step in row["steps"]] == [0.75, 0.0, 0.0]
    assert row["steps"][1]["text"] == {"text": "That makes 5.\n", "length": 14}
    assert row["others"][0]["run"] == 1 and row["others"][0]["first_error"] == 0
    assert plain.get("place", id="solution-1", error="any") == {
        "offset": 0,
        "total": 2,
        "previous": None,
        "next": "solution-2",
    }
    assert plain.get("place", id="solution-0", error="any")["offset"] is None


def test_the_reason_on_record_is_given_with_a_rollout_and_an_answer(tmp_path: Path) -> None:
    row = solution(1, ["We add.\n", "That makes 5."], [3, 4])
    reasons = [None, "the checker raised KeyError at <b>x</b>.py:3: 'a'", None, "too_short"]
    rollouts = [
        replace(rollout, prediction=None, reason=reason)
        for rollout, reason in zip(rollouts_of(row), reasons, strict=True)
    ]
    with ViewerHere(write_run(tmp_path / "run", [row], rollouts)) as viewer:
        viewer.wait_for(1)
        answer = viewer.get("rollouts", id="solution-1", step=0)
    assert [rollout["reason"] for rollout in answer["rows"]] == reasons
    assert [answer_row["reason"] for answer_row in answer["answers"]] == [None, "too_short"]


def test_rollouts_and_why_they_were_graded_so(plain: ViewerHere) -> None:
    answer = plain.get("rollouts", id="solution-1", step=0)
    assert [(a["answer"]["text"], a["count"]) for a in answer["answers"]] == [("3", 3), ("4", 1)]
    assert [row["index"] for row in answer["rows"]] == [0, 1, 2, 3]
    assert answer["rows"][2]["text"]["text"] == "So it is \\boxed{3}. (2)"
    assert [
        (g["verdict"], g["reason"]) for g in plain.get("grades", id="solution-1", step=0)["grades"]
    ] == [
        ("right", "equal"),
        ("wrong", "different"),
    ]
    status, _, body = plain.ask("/api/rollouts?run=1&id=solution-1&step=0", cookie=plain.cookie)
    assert status == 404 and "has not stored its rollouts" in json.loads(body)["error"]


@pytest.mark.parametrize(
    "path",
    [
        "solutions?outcome=x",
        "solutions?mark=id;drop",
        "solutions?sort=1",
        "solutions?width=x",
        "solutions?width=nan",
        "solutions?run=2",
        "summary?mark=x",
        "export?run=2",
        "export?offset=-1",
        "solutions?run=-1",
        "solution?id=nobody",
        "rollouts?id=solution-0&step=7",
        "text?id=solution-0&what=secret",
        "text?id=solution-0&what=step.9",
        "text?id=solution-0&what=step.-1",
    ],
)
def test_questions_without_a_meaning_are_refused(plain: ViewerHere, path: str) -> None:
    status, _, body = plain.ask(f"/api/{path}", cookie=plain.cookie)
    assert status == 404 and json.loads(body)["error"]


def test_only_who_knows_the_token_is_let_in(plain: ViewerHere) -> None:
    for path in ("/", "/api/state", "/static/viewer/main.js", "/?token=x", "/nothing"):
        status, headers, body = plain.ask(path)
        assert status == 403 and b"which contains the token" in body
        assert "default-src 'none'" in headers["content-security-policy"]
    wrong_cookie = plain.cookie[:-1] + ("y" if plain.cookie.endswith("x") else "x")
    for path, cookie, host, expected in (
        ("/", wrong_cookie, None, 403),
        ("/", plain.cookie, "evil.example", 421),
        ("/", plain.cookie, f"evil.example:{plain.port}", 421),
        ("/", plain.cookie, "localhost:9000", 200),
        ("/static/../server.py", plain.cookie, None, 404),
        ("/static/%2e%2e/server.py", plain.cookie, None, 404),
    ):
        assert plain.ask(path, cookie=cookie, **({"host": host} if host else {}))[0] == expected
    status, headers, _ = plain.ask(plain.address.removeprefix(plain.origin) + "&q=a%26b")
    assert status == 303 and headers["location"].endswith("/?q=a%26b")
    assert "HttpOnly" in headers["set-cookie"] and "SameSite" in headers["set-cookie"]


def test_long_texts_are_cut_and_given_piece_by_piece(tmp_path: Path) -> None:
    with ViewerHere(hostile_run(tmp_path / "run")) as viewer:
        viewer.wait_for(len(HOSTILE))
        number = list(HOSTILE).index("long line")
        status, _, body = viewer.ask(f"/api/solution?id=solution-{number}", cookie=viewer.cookie)
        assert status == 200 and len(body) < 200_000
        text = json.loads(body)["steps"][0]["text"]
        assert text["length"] == 1_000_001 and len(text["text"]) == 20_000
        assert (
            viewer.get("text", id=f"solution-{number}", what="step.0", offset=999_990)["text"]
            == "a" * 10 + "\n"
        )
        rollout = viewer.get("rollouts", id=f"solution-{number}", step=0)["rows"][3]["text"]
        assert len(rollout["text"]) == 4_000 and rollout["length"] == 1_000_005
        assert (
            viewer.get("text", id=f"solution-{number}", what="rollout.0.3", offset=1_000_001)[
                "text"
            ]
            == " (3)"
        )
        assert len(viewer.ask("/api/solutions?limit=50", cookie=viewer.cookie)[2]) < 100_000


def test_many_steps_are_given_part_by_part(tmp_path: Path) -> None:
    with ViewerHere(long_run(tmp_path / "run", 250)) as viewer:
        viewer.wait_for(2)
        whole = viewer.get("solution", id="solution-0")
        assert (whole["num_steps"], len(whole["steps"])) == (250, 100)
        parts = [viewer.get("steps", id="solution-0", offset=at)["steps"] for at in (100, 200, 250)]
        assert [len(part) for part in parts] == [100, 50, 0]
        steps = [*whole["steps"], *parts[0], *parts[1]]
        assert [step["text"]["text"] for step in steps] == [
            f"Step {number} adds {number}.\n" for number in range(250)
        ]
        assert whole["sources"] == list(dict.fromkeys(step["source"] for step in steps))
        assert viewer.get("rollouts", id="solution-0", step=200)["total"] == 4


@pytest.mark.slow
def test_a_run_under_way_grows(tmp_path: Path) -> None:
    run = tmp_path / "run"
    claim_manifest(
        Store(str(run), create=True),
        "run.json",
        SemanticConfig.from_config(CONFIG),
        {},
        restored_id=run.name,
    )
    with ViewerHere(str(run)) as viewer:
        assert viewer.get("state")["counts"]["total"] == 0
        for number in range(2):
            row = solution(number, ["a\n", "b"], [4, 4])
            write_run(run, [row], rollouts_of(row), block=f"{number:016x}")
            viewer.wait_for(number + 1)
        assert viewer.get("rollouts", id="solution-1", step=0)["total"] == 4
