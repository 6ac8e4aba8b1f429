"""The server of `mclabel annotate`: its access rules, its records, and the labels it hides."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mclabel.annotate.storage import read_folder
from tests.support.annotated import AnnotateProcess
from tests.support.commands import run_verb
from tests.support.shown import plain_run, solution, write_run


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("annotations") / "out"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return plain_run(tmp_path_factory.mktemp("run") / "run")


@pytest.fixture(scope="module")
def page(run: str, out: Path) -> Iterator[AnnotateProcess]:
    with AnnotateProcess(run, "-o", str(out), "--people", "ana,ben", "--overlap", "1") as served:
        yield served


def test_who_is_let_in(page: AnnotateProcess) -> None:
    cookie = page.cookie("ana")
    for method, path, headers, expected in (
        ("GET", "/", {}, 403),
        ("GET", "/?token=wrong", {}, 403),
        ("GET", "/", {"cookie": cookie.split("=")[0] + "=wrong"}, 403),
        ("GET", "/", {"cookie": cookie, "host": "evil.example"}, 421),
        ("DELETE", "/api/events", {"cookie": cookie}, 405),
    ):
        assert page.ask(method, path, **headers)[0] == expected
    status, headers, body = page.ask("GET", "/", cookie=cookie)
    assert status == 200 and "mclabel annotate" in body
    assert "script-src 'self'" in headers["content-security-policy"]


def test_no_other_site_can_write(page: AnnotateProcess, out: Path) -> None:
    event = page.opinion("ana", "solution-0", ["good", "good"])
    refused = (403, "mclabel annotate: only the page itself may send POST requests")
    for origin in ("http://evil.example", "null", "", f"http://localhost:{page.port}"):
        assert page.post(event, "ana", origin=origin) == refused
    sent = {"cookie": page.cookie("ana"), "origin": page.origin, "content-type": "text/plain"}
    assert page.ask("POST", "/api/events", event, **sent)[0] == 415
    assert read_folder(out).events == ()


@pytest.mark.parametrize(
    ("changes", "status", "why"),
    [
        ({"ratings": ["good"]}, 409, "ratings: 1 given, but solution solution-0 has steps 0 to 1"),
        ({"ratings": ["good"] * 3}, 409, "has steps 0 to 1"),
        ({"ratings": ["good", "great"]}, 400, "must be 'good', 'okay', 'bad' or 'unsure'"),
        ({"digest": "other"}, 409, "the digest of the texts of solution"),
        ({"solution": "nobody"}, 404, "is not a solution assigned to ana"),
        ({"person": "ben"}, 403, "this browser is open for ana now"),
        ({"at": 2**53 - 1}, 400, "at=9007199254740991: must be at most 4102"),
        ({"revision": 2}, 409, "revision=2: must be 1"),
        ({"note": "x" * 3000}, 400, "at most 2000 characters"),
        ({"note": "\ud800"}, 400, "valid Unicode"),
        ({"note": "x" * (1 << 20)}, 413, "larger than 1,048,576 bytes"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_event_is_refused(
    page: AnnotateProcess, out: Path, changes: dict[str, Any], status: int, why: str
) -> None:
    event = page.opinion("ana", "solution-0", ["good", "good"])
    answer, body = page.post({**event, **changes}, "ana")
    assert answer == status and why in json.loads(body)["error"]
    assert read_folder(out).events == ()


@pytest.mark.parametrize("body", ["", "[1]", '{"ms": NaN}', "[" * 100_000])
def test_what_is_no_event_is_refused(page: AnnotateProcess, body: str) -> None:
    assert page.post(body, "ana")[0] == 400


def test_labels_are_hidden_until_an_opinion_is_submitted(tmp_path: Path, run: str) -> None:
    out = tmp_path / "out"
    with AnnotateProcess(run, "-o", str(out)) as page:
        state = page.get("/api/state", "me")
        assert sorted(state["items"]) == ["solution-0", "solution-1", "solution-2"]
        shown = page.get("/api/item?id=solution-1", "me")
        assert set(shown) == {"id", "problem", "answer", "steps", "digest"}
        assert page.ask("GET", "/api/labels?id=solution-1", cookie=page.cookie("me"))[0] == 403
        event = page.opinion("me", "solution-1", ["good", "bad", None])
        sent = [page.post(event, "me") for _ in range(2)]
        assert sent == [(200, '{"new":true}'), (200, '{"new":false}')]
        # In the second case, the annotator may have seen the labels by now.
        for change in ({"note": "other"}, {"id": "another-window", "at": 0}):
            assert page.post({**event, **change}, "me")[0] == 409
        labels = page.get("/api/labels?id=solution-1", "me")
        assert labels["first_error"] == 1 and labels["outcome"] == "wrong"
        os.kill(page.process.pid, signal.SIGKILL)
        page.process.wait()
    with AnnotateProcess(run, "-o", str(out)) as page:  # resumes after the kill
        assert set(page.get("/api/state", "me")["done"]) == {"solution-1"}
        assert page.get("/summary", "me")["num_done"] == 1
    assert page.process.returncode == 0
    assert "me: 1 of 3 solutions, median 2 s; 0 without a verdict" in page.said


def test_other_settings_or_another_run_are_refused(tmp_path: Path, run: str) -> None:
    out = str(tmp_path / "out")
    with AnnotateProcess(run, "-o", out):
        pass
    other_run = write_run(tmp_path / "other", [solution(0, ["a\n", "b"], [4, 4])], None)
    changed = [solution(n, [f"{n}\n", "b"], [4, 4]) for n in (0, 1)]
    twin = write_run(tmp_path / "again" / Path(run).name, changed, None)

    for name in ("a", "b"):
        write_run(tmp_path / "two" / name, changed, None)
    for arguments, words in (
        ((run, "--seed", "1"), "seed='1', was '0'"),
        ((other_run,), "run_id="),
        ((twin,), "3 of the 3 solutions .* have other texts"),
        ((str(tmp_path / "two"),), "contains 2 labelling runs, but must"),
        ((run, "--people", "ana,ana"), "different names"),
    ):
        ended = run_verb(["annotate", *arguments, "-o", out], code=2)
        assert re.search(words, " ".join(ended.output.split()))
