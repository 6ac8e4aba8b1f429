"""`mclabel annotate`: the page on a port of this machine, until it is interrupted."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mclabel.annotate.agreement import Summary
from mclabel.annotate.events import EventLog
from mclabel.annotate.items import (
    Item,
    Settings,
    check_same,
    draw_items,
    is_annotations,
    read_items,
    read_settings,
    text_digest,
    write_items,
)
from mclabel.data.outputs import check_places, output_folder
from mclabel.data.places import ANNOTATIONS
from mclabel.data.shards.labels import read_labels
from mclabel.data.shards.store import Store
from mclabel.errors import DataError
from mclabel.records import LabeledSolution
from mclabel.report.runs import find_runs, run_identity

PORT = 8790


def annotate(
    run: str,
    out: str,
    given: Mapping[str, Any],
    *,
    port: int | None,
    on_ready: Callable[[Mapping[str, str]], None],
) -> Summary:
    """Serve the page until interrupted.

    Args:
        run: whose solutions are labelled.
        out: folder of the annotations; one that was begun goes on.
        given: fields of `Settings` that the user has chosen; of a folder that was begun, they
            must be the same.
        port: None takes PORT, or any free one if that is in use.
        on_ready: called with each person's address, once it is served.

    Returns:
        What has been done so far.

    Raises:
        ConfigError: another process serves the folder, the settings differ, or the port is in use.
        DataError: the run's solutions are not those that the folder holds.
        ShardError: the run cannot be read, or the folder holds something else.
    """
    from mclabel.annotate.server import Annotations, make_app
    from mclabel.serving.page import listen_here, page_address, serve_page

    check_places(out, ANNOTATIONS, key="-o ")
    folder = output_folder(out, "-o ")
    listening = listen_here(port, PORT)
    log = EventLog(folder)
    try:
        settings, items = _begun(run, folder, given)
        rows = _rows_of(run, items, out)
        annotations = Annotations(settings, items, rows, log)
        tokens = {secrets.token_urlsafe(24): person for person in settings.people}
        app = make_app(annotations, tokens)
        address = page_address(listening)
        on_ready({person: f"{address}/?token={token}" for token, person in tokens.items()})
        serve_page(app, listening)
        return annotations.summary()
    finally:
        log.close()
        listening.close()


def _begun(run: str, folder: Path, given: Mapping[str, Any]) -> tuple[Settings, list[Item]]:
    """The settings and items of a folder, which is begun if it has none."""
    identity = run_identity(find_runs([run])[0])
    wanted = {**given, "run_id": identity}
    if is_annotations(folder):
        settings = read_settings(folder)
        check_same(wanted, settings, str(folder))
        return settings, read_items(folder)
    settings = Settings(id=secrets.token_hex(8), run=run, **wanted)
    items = draw_items(lambda: read_labels(Store(run)), settings)
    write_items(folder, items, settings)
    return settings, items


def _rows_of(run: str, items: Sequence[Item], out: str) -> dict[str, LabeledSolution]:
    """The run's rows of the items.

    Raises:
        DataError: a solution is missing, or has other texts.
    """
    digests = {item.id: item.digest for item in items}
    rows = {row.solution.id: row for row in _among(run, digests)}
    changed = [one for one in digests if one not in rows or text_digest(rows[one]) != digests[one]]
    if changed:
        raise DataError(
            f"{run}: {len(changed)} of the {len(items)} solutions that {out} labels are gone or "
            f"have other texts, the first being {changed[0]}. Give the run as it was, or another -o"
        )
    return rows


def _among(run: str, wanted: Mapping[str, str]) -> Iterator[LabeledSolution]:
    return (row for row in read_labels(Store(run)) if row.solution.id in wanted)
