"""`mclabel annotate`: the page on a port of this machine, until it is interrupted."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mclabel.annotate.events import EventLog
from mclabel.annotate.folder import Summary
from mclabel.annotate.gold import (
    GoldLine,
    check_settings,
    gold_digest,
    is_of_run,
    read_gold,
    with_gold,
)
from mclabel.annotate.items import (
    OVERSEER,
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
from mclabel.core.errors import ConfigError, DataError, ShardError
from mclabel.core.records import LabeledSolution
from mclabel.core.seeds import content_id
from mclabel.data.readers.solutions import Selected, read_selected
from mclabel.run.kinds import Run, find_runs, run_identity
from mclabel.run.outputs import ANNOTATIONS, check_places, output_folder
from mclabel.run.shards.labels import read_labels

PORT = 8790


def annotate(
    run: str,
    out: str,
    given: Mapping[str, Any],
    *,
    gold: str | None = None,
    select: str | None = None,
    port: int | None,
    on_ready: Callable[[Mapping[str, str]], None],
) -> Summary:
    """Serve the page until interrupted.

    Args:
        run: whose solutions are labelled, or a folder that holds one.
        out: folder of the annotations; one that was begun goes on.
        given: fields of `Settings` that the user has chosen; of a folder that was begun, they
            must be the same.
        gold: file of solutions whose first errors are known, which are mixed in.
        select: manifest of `mclabel select` that says which solutions; None draws them.
        port: None takes PORT, or any free one if that is in use.
        on_ready: called with each person's address, the overseer's at the end, once it is
            served.

    Returns:
        What has been done so far.

    Raises:
        ConfigError: another process serves the folder, the settings differ, or the port is in use.
        DataError: the run's solutions are not those that the folder holds.
        ShardError: the run cannot be read, or the folder holds something else.
    """
    from mclabel.annotate.server import OVERVIEW, Annotations, make_app
    from mclabel.serving.access import listen_here, page_address, serve_page

    labelled = _labelled(run)
    lines = [] if gold is None else read_gold(gold)
    selected = None if select is None else read_selected(select, "--select ")
    given = _with_digests(given, lines, selected)
    check_places(out, ANNOTATIONS, key="-o ")
    folder = output_folder(out, "-o ")
    listening = listen_here(port, PORT)
    log = EventLog(folder)
    try:
        settings, items = _begun(labelled, folder, given, lines, selected)
        rows = _rows_of(labelled, items, out)
        annotations = Annotations(settings, items, rows, log)
        names = (*settings.people, OVERSEER)
        tokens = {secrets.token_urlsafe(24): person for person in names}
        app = make_app(annotations, tokens)
        address = page_address(listening)
        with suppress(KeyboardInterrupt):  # also one that comes before the server listens to it
            on_ready(
                {
                    person: f"{address}{OVERVIEW if person == OVERSEER else '/'}?token={token}"
                    for token, person in tokens.items()
                }
            )
            serve_page(app, listening)
        return annotations.summary()
    finally:
        log.close()
        listening.close()


def _labelled(place: str) -> Run:
    runs = [run for run in find_runs([place]) if run.kind == "labels"]
    if len(runs) != 1:
        raise ShardError(f"{place}: holds {len(runs)} runs of labels, must be one. Give its `out`")
    return runs[0]


def _with_digests(
    given: Mapping[str, Any], lines: Sequence[GoldLine], selected: Selected | None
) -> dict[str, Any]:
    """The given settings, with what gold and selection are known by.

    Raises:
        ConfigError: a person has the overseer's name, or both a selection and a sample are given.
    """
    if OVERSEER in given.get("people", ()):
        raise ConfigError(f"--people {OVERSEER}: is the name of whoever runs this. Give another")
    found = dict(given)
    if lines:
        found["gold"] = gold_digest(lines)
    if selected is not None:
        if "sample" in found:
            raise ConfigError("--sample: --select names the solutions already. Leave one out")
        found["sample"] = len(selected.texts)
        found["select"] = content_id(dict(selected.texts), dict(selected.probabilities))
    return found


def _begun(
    run: Run,
    folder: Path,
    given: Mapping[str, Any],
    lines: Sequence[GoldLine],
    selected: Selected | None,
) -> tuple[Settings, list[Item]]:
    """The settings and items of a folder, which is begun if it has none."""
    identity = run_identity(run)
    wanted = {**given, "run_id": identity}
    if is_annotations(folder):
        settings = read_settings(folder)
        check_same(wanted, settings, str(folder))
        return settings, read_items(folder)
    check_settings(given)
    settings = Settings(id=secrets.token_hex(8), run=run.location, **wanted)
    items = draw_items(lambda: read_labels(run.store), settings, selected)
    if lines:
        items = with_gold(items, lines, lambda: read_labels(run.store), settings)
    write_items(folder, items, settings)
    return settings, items


def _rows_of(run: Run, items: Sequence[Item], out: str) -> dict[str, LabeledSolution]:
    """The run's rows of the items.

    Raises:
        DataError: a solution is missing, or has other texts.
    """
    digests = {item.id: item.digest for item in items if is_of_run(item)}
    rows = {row.solution.id: row for row in read_labels(run.store) if row.solution.id in digests}
    changed = [one for one in digests if one not in rows or text_digest(rows[one]) != digests[one]]
    if changed:
        raise DataError(
            f"{run.location}: {len(changed)} of the {len(items)} solutions that {out} labels are "
            f"gone or have other texts, the first being {changed[0]}. Give the run as it was, or "
            "another -o"
        )
    return rows
