"""An annotation is on the disk before it is acknowledged, and its last revision is read back."""

from __future__ import annotations

import random
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from mclabel.annotate.events import parse_event
from mclabel.annotate.folder import AnnotationFolder
from mclabel.annotate.storage import EVENTS, MANIFEST, read_folder
from mclabel.core.errors import ConfigError, DataError, ShardError
from tests.support.annotated import add_events, begun_log, event


def ids(folder: Path) -> list[str]:
    return [recorded.id for recorded in read_folder(folder).events]


def test_an_event_sent_twice_is_one(tmp_path: Path) -> None:
    with begun_log(tmp_path) as log:
        assert log.add(event(0)) is True
        assert log.add(event(0)) is False
        with pytest.raises(DataError, match="another event has this id"):
            log.add(event(0, note="changed"))
    assert read_folder(tmp_path).events == (event(0),)


def test_the_order_of_recording_counts_and_no_clock(tmp_path: Path) -> None:
    """A clock that was set back or a second window cannot replace a first or a last annotation."""
    blind = event(0)
    later = event(1, ratings=["good", "good", "good"], finish="solution", at=5)
    with begun_log(tmp_path) as log:
        log.add(blind)
        log.add(later)
        for wrong in (event(2, revision=1, at=0), event(2, revision=2), event(3, revision=4)):
            with pytest.raises(
                DataError, match="must be 3, as ana has submitted 2 opinions on solution"
            ):
                log.add(wrong)
        assert log.get_first_event("ana", "solution-1") == blind
    annotated = AnnotationFolder.read(str(tmp_path))
    key = ("ana", "solution-1")
    assert (annotated.first_events[key], annotated.last_events[key]) == (blind, later)


def test_nothing_acknowledged_is_lost_wherever_a_kill_strikes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    draw = random.Random(0)
    whole = tmp_path / "whole"
    sizes, manifests = [], []
    with begun_log(whole) as log:
        for number in range(12):
            sizes.append((whole / EVENTS).stat().st_size)
            manifests.append((whole / MANIFEST).read_bytes())
            log.add(event(number, note="ü\n" * draw.randrange(40)))
    sizes.append((whole / EVENTS).stat().st_size)
    content, all_ids = (whole / EVENTS).read_bytes(), ids(whole)
    for point in range(50):
        acknowledged = draw.randrange(12)
        end = draw.randrange(sizes[acknowledged], sizes[acknowledged + 1] + 1)
        folder = tmp_path / str(point)
        shutil.copytree(whole, folder)
        (folder / EVENTS).write_bytes(content[:end])
        (folder / MANIFEST).write_bytes(manifests[acknowledged])
        is_whole = end == sizes[acknowledged + 1]
        expected = all_ids[: acknowledged + is_whole]
        caplog.clear()
        assert ids(folder) == expected
        is_cut = sizes[acknowledged] < end and not is_whole
        assert ("is incomplete and is left out" in caplog.text) is is_cut
        add_events(folder, [event(99, revision=len(expected) + 1)])
        assert ids(folder) == [*expected, "event-0099"]


def test_a_folder_has_one_process(tmp_path: Path) -> None:
    with (
        begun_log(tmp_path),
        pytest.raises(ConfigError, match="another `mclabel annotate` serves this folder"),
    ):
        add_events(tmp_path, [])


def test_what_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    with begun_log(tmp_path) as log:
        log.add(event(0))
        with monkeypatch.context() as patched:
            patched.setattr("mclabel.annotate.storage.os.fsync", full)
            with pytest.raises(ShardError, match="cannot be written"):
                log.add(event(1))
        assert log.add(event(1)) is True
    assert read_folder(tmp_path).events == (event(0), event(1))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"id": "x y"}, "id='x y': must match the pattern"),
        ({"ratings": ["great"]}, "ratings.0='great': must be 'good', 'okay', 'bad' or 'unsure'"),
        ({"finish": "done"}, "finish='done': must be 'found_error'"),
        ({"finish": "solution"}, "step 1 is rated bad"),
        ({"ratings": ["good", "okay"]}, "no step is rated bad"),
        ({"ratings": ["good", None], "finish": "solution"}, "step 1 is not rated"),
        ({"ratings": [None, "bad"]}, "step 0 is not rated"),
        ({"finish": "give_up"}, "the note must give a reason"),
        ({"note": "x" * 2001}, "must have at most 2000 characters"),
        ({"ms": True}, "ms=True: must be a whole number"),
        ({"ms": 10**11 + 1}, "ms=100000000001: must be at most 100000000000"),
        ({"revision": 0}, "revision=0: must be at least 1"),
        (
            {"at": 2**53 - 1},
            "at=9007199254740991: must be at most 4102444800000",
        ),
        ({"person": "\ud800"}, "a string is not valid Unicode"),
        ({"at": 1e12}, "at=1000000000000.0: must be a whole number"),
        ({"extra": 1}, "extra=1: unknown key"),
    ],
)
def test_an_event_that_breaks_a_rule_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(DataError, match=why.replace("(", r"\(")):
        parse_event({**asdict(event()), **changes})


@pytest.mark.parametrize(
    ("ratings", "finish", "sure", "error"),
    [
        (["good", "bad", None], "found_error", True, 1),
        (["okay", "good"], "solution", True, None),
        (["unsure", "bad"], "found_error", False, 1),
        (["good", "unsure"], "solution", False, None),
        (["bad", "unsure"], "found_error", True, 0),
        (["bad"], "bad_problem", False, 0),
    ],
)
def test_the_first_error_is_the_first_bad_step_if_no_doubt_comes_before(
    ratings: list[str | None], finish: str, sure: bool, error: int | None
) -> None:
    opinion = event(ratings=ratings, finish=finish, note="why")
    assert (opinion.is_sure, opinion.first_error) == (sure, error)
