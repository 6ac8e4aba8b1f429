"""A damaged folder of annotations is not read, and the message names the file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mclabel.annotate.export import export_annotations
from mclabel.annotate.serve import annotate
from mclabel.annotate.storage import (
    EVENTS,
    ITEMS,
    MANIFEST,
    FileEnd,
    _encode_chained_lines,
    read_folder,
    verify_annotations,
)
from mclabel.cli import main
from mclabel.core.errors import MclabelError
from mclabel.evaluate.labels.job import evaluate_labels
from mclabel.judge.combine import combine
from mclabel.run.shards.digest import add_digest
from tests.annotate.test_measured import FIRST, GAVE_UP, RIGHT, ROWS, WRONG
from tests.support.annotated import add_events, event
from tests.support.commands import run_verb
from tests.support.damaged import Content, damaged, file_damages
from tests.support.shown import write_run

FILES = (MANIFEST, ITEMS, EVENTS)


def serve(run: str, folder: Path, **settings: Any) -> None:
    """Start the server, and end it as Ctrl-C does, once it is ready."""

    def stop(addresses: Mapping[str, str]) -> None:
        raise KeyboardInterrupt

    annotate(run, str(folder), settings, port=None, on_ready=stop)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_run(tmp_path_factory.mktemp("run") / "run", ROWS, None)


@pytest.fixture(scope="module")
def folder(run: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the annotations of two people, one of which was revised."""
    place = tmp_path_factory.mktemp("annotations") / "sound"
    serve(run, place, people=("ana", "ben"), overlap=1.0)
    contents = [WRONG, RIGHT, FIRST, GAVE_UP, {**RIGHT, "note": "why ü"}, WRONG]
    items = read_folder(place).items
    events = [
        event(n, person=person, solution=item.id, digest=item.digest, revision=1, **content)
        for n, (item, content) in enumerate(zip(items, contents, strict=False))
        for person in (item.people[n % 2],)
    ]
    first = events[0]
    again = event(90, person=first.person, solution=first.solution, digest=first.digest,
                  **{**RIGHT, "revision": 2})  # fmt: skip
    add_events(place, [*events, again])
    return place


LINES: dict[str, Callable[[list[bytes], int], list[bytes]]] = {
    "doubled": lambda lines, n: [*lines[: n + 1], *lines[n:]],
    "removed": lambda lines, n: [*lines[:n], *lines[n + 1 :]],
    "swapped": lambda lines, n: [*lines[:n], lines[n + 1], lines[n], *lines[n + 2 :]],
    "shortened": lambda lines, n: [*lines[:n], lines[n][:40] + b"\n", *lines[n + 1 :]],
}
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
        "overlap": (2, -0.1), "seed": (-1,), "gold_share": (1, -1),
        "id": (3,), "run_id": (None,), "new": (1,),
    },
}  # fmt: skip


def change_value(folder: Path, name: str, field: str, value: Any) -> dict[str, Content]:
    """Change a value and update its digests, so that only rules of fields find the change."""
    manifest, changed = json.loads((folder / MANIFEST).read_text()), dict[str, Content]()
    del manifest["digest"]
    if name == MANIFEST:
        manifest["settings"][field] = value
    else:
        rows = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        for row in rows:
            del row["check"]
        rows[2][field] = value
        changed[name], end = _encode_chained_lines(rows, FileEnd())
        manifest[name.split(".")[0]] = vars(end)
    return {**changed, MANIFEST: json.dumps(add_digest(manifest)).encode()}


def damages(folder: Path, name: str) -> Iterator[tuple[str, dict[str, Content]]]:
    """Yield a description of each damage to a file, and the new contents."""
    whole = (folder / name).read_bytes()
    for damage_name, content in file_damages(name, whole, flips=20):
        yield damage_name, {name: content}
    for field, values in VALUES[name].items():
        for value in values:
            yield f"{field}={str(value)[:20]}", change_value(folder, name, field, value)
    lines = whole.splitlines(keepends=True)
    for damage_name, change in LINES.items() if len(lines) > 1 else ():
        for place in (0, len(lines) // 2, len(lines) - 2):
            yield f"{damage_name} at {place}", {name: b"".join(change(lines, place))}


@pytest.mark.parametrize("name", FILES)
def test_no_damage_is_silent(name: str, folder: Path) -> None:
    before, num_harmless, silent = read_folder(folder), 0, []
    for damage_name, changes in damages(folder, name):
        with damaged(folder, changes):
            verification = verify_annotations(str(folder))
            report = "".join(f"{finding}\n" for finding in verification.damage)
            try:
                is_harmless = read_folder(folder) == before and verification.is_sound
            except MclabelError as error:  # any other exception is a traceback, and fails the test
                is_harmless = False
                if name not in str(error) or "\n" in str(error):
                    silent.append((damage_name, str(error)))
        num_harmless += is_harmless  # white space in JSON
        if not is_harmless and name not in report:
            silent.append((damage_name, report))
    assert silent == [] and num_harmless < 5


def test_every_reader_refuses_a_damaged_folder(run: str, folder: Path, tmp_path: Path) -> None:
    both = str(tmp_path / "both")
    readers: list[Callable[[], object]] = [
        lambda: evaluate_labels(run, f"people:{folder}", None, seed=0),
        lambda: combine(run, [str(folder)], both, rule="same_location"),
        lambda: export_annotations(str(folder), "parquet", str(tmp_path / "data")),
        lambda: serve(run, folder),
    ]
    lines = (folder / EVENTS).read_bytes().splitlines(keepends=True)
    spoilt = b"".join([lines[0], lines[1].replace(b"good", b"okay"), *lines[2:5]])
    with damaged(folder, {EVENTS: spoilt}):
        for read in readers:
            with pytest.raises(MclabelError, match=r"events.jsonl, line 2: is not the line that w"):
                read()
        ended = CliRunner().invoke(main, ["verify", str(folder), "--json"])
    faults = json.loads(ended.stdout)["damage"]
    assert ended.exit_code == 1 and [fault["name"] for fault in faults][1:] == ["events.jsonl"]
    assert "has 5 complete lines, but annotations.json counts 7" in faults[1]["fault"]
    run_verb(["verify", str(folder)])
