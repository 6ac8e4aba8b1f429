"""What people say is on the disk once it is acknowledged, and is read back as they last said it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from mclabel.annotate.events import EVENTS, EventLog, latest, parse_event, read_events
from mclabel.core.errors import ConfigError, DataError, ShardError
from tests.support.annotated import event


@pytest.fixture
def log(tmp_path: Path) -> EventLog:
    return EventLog(tmp_path)


def test_an_event_sent_twice_is_one(log: EventLog, tmp_path: Path) -> None:
    assert log.add(event(1)) is True
    assert log.add(event(1)) is False
    assert read_events(tmp_path) == [event(1)]
    with pytest.raises(DataError, match="is the id of another event"):
        log.add(event(1, note="changed"))


def test_the_last_opinion_counts_in_whatever_order_they_come() -> None:
    events = [
        event(0, ratings=["bad"], finish="found_error"),
        event(1, ratings=["good"], finish="solution", at=5),  # a clock that was set back
        event(2, person="ben", ratings=["unsure"], finish="solution"),
    ]
    for seed in range(6):
        random.Random(seed).shuffle(events)
        found = latest(events)
        assert found["ana", "solution-1"].finish == "solution"
        assert set(found) == {("ana", "solution-1"), ("ben", "solution-1")}


def test_nothing_acknowledged_is_lost_wherever_a_kill_strikes(tmp_path: Path) -> None:
    draw = random.Random(0)
    whole = tmp_path / "whole"
    whole.mkdir()
    log = EventLog(whole)
    sizes = [0]
    for number in range(12):
        log.add(event(number, note="ü\n" * draw.randrange(40)))
        sizes.append((whole / EVENTS).stat().st_size)
    content = (whole / EVENTS).read_bytes()
    for point in range(50):
        acknowledged = draw.randrange(12)
        end = draw.randrange(sizes[acknowledged], sizes[acknowledged + 1])
        folder = tmp_path / str(point)
        folder.mkdir()
        (folder / EVENTS).write_bytes(content[:end])
        expected = [event_.id for event_ in read_events(whole)][:acknowledged]
        assert [one.id for one in read_events(folder)] == expected
        again = EventLog(folder)
        again.add(event(99))
        assert [one.id for one in read_events(folder)] == [*expected, "event-0099"]
        again.close()


def test_a_real_kill_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from mclabel.annotate.events import EventLog\n"
        "from tests.support.annotated import event\n"
        "log = EventLog(Path(sys.argv[1]))\n"
        "for number in range(10**6):\n"
        "    log.add(event(number)); print(number, flush=True)\n"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    while writer.stdout.readline() != "20\n":
        pass
    os.kill(writer.pid, signal.SIGKILL)
    acknowledged = 20 + len(writer.stdout.read().splitlines())
    writer.wait()
    found = [one.id for one in read_events(tmp_path)]
    assert found[: acknowledged + 1] == [f"event-{n:04d}" for n in range(acknowledged + 1)]
    EventLog(tmp_path).close()  # its lock has died with it


def test_a_folder_has_one_process(log: EventLog, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="another `mclabel annotate` serves this folder"):
        EventLog(tmp_path)


def test_a_damaged_line_in_the_middle_is_named(log: EventLog, tmp_path: Path) -> None:
    log.add(event(0))
    log.add(event(1))
    path = tmp_path / EVENTS
    path.write_bytes(path.read_bytes().replace(b'"bad"', b'"evil"', 1))
    with pytest.raises(DataError, match=r"events.jsonl, line 1: is no event .*ratings="):
        read_events(tmp_path)


def test_what_cannot_be_written_leaves_nothing(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.add(event(0))

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("mclabel.annotate.events.os.fsync", full)
        with pytest.raises(ShardError, match="cannot be written"):
            log.add(event(1))
    assert log.add(event(1)) is True
    assert read_events(tmp_path) == [event(0), event(1)]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"id": "x y"}, "id='x y': must be 8 to 64 letters"),
        ({"ratings": ["great"]}, "must be a list of good, okay, bad, unsure or null"),
        ({"finish": "done"}, "finish='done': must be one of found_error"),
        ({"finish": "solution"}, "step 1 is rated bad"),
        ({"ratings": ["good", "okay"]}, "no step is rated bad"),
        ({"ratings": ["good", None], "finish": "solution"}, "step 1 is not rated"),
        ({"ratings": [None, "bad"]}, "step 0 is not rated"),
        ({"finish": "give_up"}, "needs a reason"),
        ({"note": "x" * 2001}, "2000 characters at most"),
        ({"ms": True}, "ms='True': must be a whole number"),
        ({"revision": 0}, "revision='0': must be a whole number from 1 on"),
        ({"at": 1e12}, "at='1000000000000.0': must be a whole number"),
        ({"extra": 1}, "an event has the fields"),
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
    one = event(ratings=ratings, finish=finish, note="why")
    assert (one.is_sure, one.first_error) == (sure, error)
