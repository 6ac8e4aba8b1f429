"""Whatever happens to a folder of annotations: no reader uses it, and each names the file."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mclabel.annotate.export import export_people, import_people
from mclabel.annotate.serve import annotate
from mclabel.annotate.storage import (
    EVENTS,
    ITEMS,
    MANIFEST,
    LineEnd,
    _chained,
    read_folder,
    verify_annotations,
)
from mclabel.cli import main
from mclabel.core.errors import MclabelError
from mclabel.evaluate.labels.job import evaluate_labels
from mclabel.judge.combine import combine
from mclabel.run.shards.digest import with_digest
from tests.annotate.test_measured import FIRST, GAVE_UP, RIGHT, ROWS, WRONG
from tests.support.annotated import add_events, event
from tests.support.shown import write_run

Damage = Callable[[Path], None]
FILES = (MANIFEST, ITEMS, EVENTS)


def serve(run: str, folder: Path, **given: Any) -> None:
    """Start the server, and end it as Ctrl-C does once it is ready."""

    def stop(addresses: Mapping[str, str]) -> None:
        raise KeyboardInterrupt

    annotate(run, str(folder), given, port=None, on_ready=stop)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_run(tmp_path_factory.mktemp("run") / "run", ROWS, None)


@pytest.fixture(scope="module")
def folder(run: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with opinions of two people, one of them revised."""
    place = tmp_path_factory.mktemp("annotations") / "sound"
    serve(run, place, people=("ana", "ben"), overlap=1.0)
    said = [WRONG, RIGHT, FIRST, GAVE_UP, {**RIGHT, "note": "why ü"}, WRONG]
    items = read_folder(place).items
    events = [
        event(n, person=person, solution=item.id, digest=item.digest, revision=1, **content)
        for n, (item, content) in enumerate(zip(items, said, strict=False))
        for person in (item.people[n % 2],)
    ]
    first = events[0]
    again = event(90, person=first.person, solution=first.solution, digest=first.digest,
                  **{**RIGHT, "revision": 2})  # fmt: skip
    add_events(place, [*events, again])
    return place


def flipped(name: str, draw: random.Random) -> Damage:
    chosen = draw.random()

    def damage(out: Path) -> None:
        content = bytearray((out / name).read_bytes())
        bit = int(chosen * 8 * len(content))
        content[bit // 8] ^= 1 << bit % 8
        (out / name).write_bytes(bytes(content))

    return damage


def cut(name: str, draw: random.Random) -> Damage:
    chosen = draw.random()

    def damage(out: Path) -> None:
        content = (out / name).read_bytes()
        (out / name).write_bytes(content[: int(chosen * len(content))])

    return damage


def relined(name: str, change: Callable[[list[bytes], int], list[bytes]], place: float) -> Damage:
    def damage(out: Path) -> None:
        lines = (out / name).read_bytes().splitlines(keepends=True)
        (out / name).write_bytes(b"".join(change(lines, int(place * len(lines)))))

    return damage


LINES: dict[str, Callable[[list[bytes], int], list[bytes]]] = {
    "doubled": lambda lines, n: [*lines[: n + 1], *lines[n:]],
    "removed": lambda lines, n: [*lines[:n], *lines[n + 1 :]],
    "swapped": lambda lines, n: (
        [*lines[: n - 1], lines[n], lines[n - 1], *lines[n + 1 :]]
        if n
        else [lines[1], lines[0], *lines[2:]]
    ),
    "shortened": lambda lines, n: [*lines[:n], lines[n][:40] + b"\n", *lines[n + 1 :]],
}


def replaced(name: str, kind: str) -> Damage:
    def damage(out: Path) -> None:
        path = out / name
        path.unlink()
        if kind == "folder":
            path.mkdir()
        elif kind == "fifo":
            os.mkfifo(path)
        elif kind == "dead link":
            path.symlink_to(out / "nowhere")
        elif kind == "empty":
            path.touch()

    return damage


def revalued(name: str, field: str, value: Any) -> Damage:
    """Another value, with digests that fit it: only the rules of fields can find it."""

    def damage(out: Path) -> None:
        manifest = json.loads((out / MANIFEST).read_text())
        del manifest["digest"]
        if name == MANIFEST:
            manifest["settings"][field] = value
        else:
            rows = [json.loads(line) for line in (out / name).read_text().splitlines()]
            for row in rows:
                del row["check"]
            rows[2][field] = value
            content, end = _chained(rows, LineEnd())
            (out / name).write_bytes(content)
            manifest[name.split(".")[0]] = vars(end)
        (out / MANIFEST).write_text(json.dumps(with_digest(manifest)))

    return damage


VALUES: dict[str, dict[str, tuple[Any, ...]]] = {
    ITEMS: {
        "probability": (2.0, -1, 0, 1e-300, True, "x"), "id": ("", 3), "steps": ([], ["x"]),
        "digest": ("x",), "gold": ([9], [-1], []), "people": (["eva"], ["ana", "ana"], None),
        "problem": ("", 3), "answer": (None,), "stratum": (5,), "prediction": (1,), "new": (1,),
    },
    EVENTS: {
        "id": ("x", None, "event-0001"), "person": ("", "eva"), "solution": ("gone", []),
        "digest": ("d" * 16, None), "ratings": (["good"], ["great", None, None], None),
        "finish": ("found", ["solution"]), "note": (3, "x" * 2001), "ms": (-1, 2**53, 1.5),
        "at": (2**53 - 1, -1, 1e400), "revision": (0, 10**9, True), "new": (1,),
    },
    MANIFEST: {
        "people": ([], ["ana", "ana"], ["overseer"], ["ana"]), "sample": (0, 1.5),
        "overlap": (2, -0.1), "seed": (-1,), "gold_share": (1, -1), "screening": (-1,),
        "admit": (1.5,), "id": (3,), "run_id": (None,), "new": (1,),
    },
}  # fmt: skip


def damages() -> Iterator[tuple[str, str, Damage]]:
    """Name of the file, what is done to it, and how."""
    draw = random.Random(0)
    for name in FILES:
        for number in range(20):
            yield name, f"flip {number}", flipped(name, draw)
        for number in range(8):
            yield name, f"cut {number}", cut(name, draw)
        for kind in ("deleted", "folder", "fifo", "dead link", "empty"):
            yield name, kind, replaced(name, kind)
        for field, values in VALUES[name].items():
            for value in values:
                yield name, f"{field}={str(value)[:20]}", revalued(name, field, value)
    for name in (ITEMS, EVENTS):
        for what, change in LINES.items():
            for place in (0.0, 0.5, 0.999):
                yield name, f"{what} at {place}", relined(name, change, place)


def readers(run: str, tmp_path: Path, exported: Path) -> dict[str, Callable[[Path], object]]:
    """Everything that reads a folder."""
    return {
        "eval": lambda out: evaluate_labels(run, f"people:{out}", None, seed=0),
        "combine": lambda out: combine(
            run, [str(out)], str(tmp_path / "both"), rule="same_location"
        ),
        **{
            to: lambda out, to=to: export_people(str(out), to, str(tmp_path / to))
            for to in ("prm800k", "label-studio", "parquet")
        },
        "import": lambda out: import_people(str(exported), str(out)),
        "serve": lambda out: serve(run, out),
    }


@pytest.mark.slow
def test_no_damage_is_silent(run: str, folder: Path, tmp_path: Path) -> None:
    export_people(str(folder), "label-studio", str(tmp_path / "exported"))
    all_readers = readers(run, tmp_path, tmp_path / "exported" / "data.json")
    before, num_harmless, silent = read_folder(folder), 0, []
    todo = list(damages())
    for number, (name, what, damage) in enumerate(todo):
        out = tmp_path / f"damaged{number}"
        shutil.copytree(folder, out)
        damage(out)
        found = verify_annotations(str(out))
        if found.is_sound and read_folder(out) == before:
            num_harmless += 1  # white space of JSON
            continue
        messages = {"verify": "".join(f"{one}\n" for one in found.damage)}
        for reader, read in all_readers.items():
            try:
                read(out)
            except MclabelError as error:  # anything else is a traceback, and fails the test
                messages[reader] = str(error)
            else:
                messages[reader] = ""
        for reader, message in messages.items():
            is_one_line = reader == "verify" or "\n" not in message
            if name not in message or not is_one_line:
                silent.append(f"{name}, {what}: {reader}: {message!r}")
    assert silent == []
    assert len(todo) > 180 and num_harmless < 10


def test_verify_names_the_line(run: str, folder: Path, tmp_path: Path) -> None:
    sound = CliRunner().invoke(main, ["verify", str(folder)])
    assert sound.exit_code == 0 and "opinions" in sound.output
    out = tmp_path / "out"
    shutil.copytree(folder, out)
    path = out / EVENTS
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], lines[1].replace(b"good", b"okay"), *lines[2:5]]))
    ended = CliRunner().invoke(main, ["verify", str(out), "--json"])
    assert ended.exit_code == 1
    found = json.loads(ended.stdout)
    assert [one["name"] for one in found["damage"]] == ["events.jsonl, line 2", "events.jsonl"]
    assert "holds 5 whole lines, and annotations.json counts 7" in found["damage"][1]["fault"]
    for command in (["export", str(out), "--to", "parquet", "-o", str(tmp_path / "data")],
                    ["eval", "labels", run, "--truth", str(out)]):  # fmt: skip
        ended = CliRunner().invoke(main, command)
        said = " ".join(ended.output.split())
        assert ended.exit_code == 2 and "events.jsonl, line 2: is not the line that was" in said
