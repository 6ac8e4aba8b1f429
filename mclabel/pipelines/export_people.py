"""Exports of what people said in `mclabel annotate`."""

from __future__ import annotations

import json
from pathlib import Path

from mclabel.annotate.folder import Annotated
from mclabel.annotate.truth import LOSSES, prm800k_rows
from mclabel.data.outputs import output_folder
from mclabel.data.places import EXPORT, check_free
from mclabel.errors import ConfigError, DataError
from mclabel.pipelines.exchange import CARD, DATA, ExportReport, push_folder

PRM800K = "prm800k"


def export_people(
    folder: str,
    to: str,
    out: str,
    *,
    screening: bool = False,
    push_to_hub: str | None = None,
) -> ExportReport:
    """Write a row for each person's opinion on each solution, and a data set card.

    Args:
        folder: of `mclabel annotate`.
        to: name of the format: `prm800k`.
        out: folder, made if it is missing; what it holds of an earlier export is replaced.
        screening: whether the questions of the screening are written, too.
        push_to_hub: data set of the Hugging Face Hub that the folder is uploaded to.

    Raises:
        ConfigError: another format, or the upload was refused.
        DataError: nobody has submitted anything.
    """
    if to != PRM800K:
        raise ConfigError(
            f"--to {to}: what people said in {folder} can be written as {PRM800K} alone. Give --to "
            f"{PRM800K}; `mclabel import --from {PRM800K}` makes a run of that, for other formats"
        )
    check_free(out, EXPORT, "-o ")
    rows = list(prm800k_rows(Annotated.read(folder), screening=screening))
    if not rows:
        raise DataError(f"{folder}: nobody has submitted a solution yet, so there are no rows")
    place = output_folder(out, "-o ")
    text = "".join(json.dumps(row) + "\n" for row in rows)
    _replace(place / DATA, text)
    _replace(place / CARD, _card(len(rows), len({row["labeler"] for row in rows})))
    url = None if push_to_hub is None else push_folder(place, push_to_hub, [DATA, CARD])
    return ExportReport(
        to=to,
        losses=LOSSES,
        path=str(place / DATA),
        num_rows=len(rows),
        num_left_out=0,
        num_cut=0,
        num_not_kept=0,
        url=url,
    )


def _replace(path: Path, text: str) -> None:
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.rename(path)


def _card(num_rows: int, num_people: int) -> str:
    return f"""---
tags: [process-reward-model, mclabel]
configs:
- config_name: default
  data_files: {DATA}
---
{num_rows} opinions of {num_people} people on the steps of solutions, in the format of PRM800K,
collected with `mclabel annotate`.

What this format cannot hold: {LOSSES}.
"""
