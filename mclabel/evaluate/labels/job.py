"""The quality of a labelling run, from its folder and a source of truth."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mclabel.annotate.folder import Annotated, peoples_truth
from mclabel.annotate.items import text_digest
from mclabel.annotate.storage import is_annotations
from mclabel.core.errors import ConfigError, DataError
from mclabel.core.records import Counts, LabeledSolution
from mclabel.data.readers.judged import JudgedSolution, as_judged, read_prm800k, read_processbench
from mclabel.data.readers.solutions import RowRejects
from mclabel.evaluate.labels.calibration import independent_counts
from mclabel.evaluate.labels.quality import has_exact_truth
from mclabel.evaluate.labels.report import ALL, LabelReport, label_report
from mclabel.evaluate.labels.show import calibration_plot, position_plot
from mclabel.evaluate.labels.tables import label_grids
from mclabel.evaluate.labels.truth import Truth, check_same_problems, exact_truth, judged_truth
from mclabel.run.outputs import FIGURES, check_places, output_folder
from mclabel.run.shards.labels import label_tables, read_labels, read_rollouts
from mclabel.run.shards.store import Store
from mclabel.show.figures import markdown, save_plot
from mclabel.show.texts import json_text

logger = logging.getLogger(__name__)


def evaluate_labels(shards: str, truth: str | None, out: str | None, *, seed: int) -> LabelReport:
    """Measure a run's labels; with `out`, write labels.json, labels.md and plots there.

    Args:
        shards: the run.
        truth: `exact`, `processbench:FILE` or that file alone, `prm800k:FILE`, `run:FOLDER`,
            `people:FOLDER` of `mclabel annotate` or that folder alone; None is `exact` where the
            problems are of a built-in domain, and none otherwise.
        out: folder, made if it is missing.
        seed: seed of the bootstrap.

    Raises:
        ConfigError: `truth` is none of these.
        DataError: the truth's file cannot be used, or it knows no solution of the run.
    """
    check_out_folder(out)
    rows = list(read_labels(Store(shards)))
    if not rows:
        raise DataError(
            f"{shards}: its shards hold no labelled solutions. Give a run of `mclabel label`"
        )
    kind, _, source = (truth or ("exact" if has_exact_truth(rows) else "")).partition(":")
    loaded_truth = _read_truth(kind, source, rows)
    if loaded_truth is not None and not loaded_truth.first_errors:
        raise DataError(
            f"--truth {truth}: holds labels for none of the {len(rows)} solutions of {shards}, "
            f"the first being {rows[0].solution.id} of problem {rows[0].problem.id}. Solutions "
            "are matched by the texts of problem and solution, so both files must hold the same "
            "texts; those of a run count where it has decided on a first error, or on none"
        )
    reference = None
    if kind == "run":
        reference = _read_reference(Store(shards), Store(source), rows[0].values_of)
    report = label_report(
        rows,
        loaded_truth,
        reference,
        judge_rates=_judge_rates(Store(shards), rows),
        seed=seed,
    )
    if out is not None:
        _write_report(report, out_folder(out))
    return report


def check_width(width: float | None) -> None:
    """Refuse a width that no interval can have.

    Raises:
        ConfigError: it is not in (0, 1).
    """
    if width is not None and not 0 < width < 1:
        raise ConfigError(f"--width {width}: must be in (0, 1), such as 0.1")


def more_words(report: LabelReport, width: float) -> str:
    """Return the number of further solutions with a truth that would narrow the interval to a
    width.

    Of the share of first errors that are labelled right, over all solutions. An interval narrows
    with the square root of their number, so n * (width now / width)^2 are needed.

    Args:
        report: a report with a truth.
        width: the wanted width of the interval, in (0, 1).
    """
    quality = report.groups[ALL].quality
    now = None if quality is None else quality.first_error_accuracy
    if quality is None or now is None or now.low is None or now.high is None:
        return "--width: there is no truth to compare with, so there is no interval to narrow"
    num_solutions, span = quality.num_solutions, now.high - now.low
    shown = (
        f"The interval of first errors that are labelled right is {span:.3f} wide on "
        f"{num_solutions:,} solutions"
    )
    if span <= width:
        return f"{shown}, as narrow as --width {width:g} asks"
    more = math.ceil(num_solutions * (span / width) ** 2 - 1e-9) - num_solutions
    return (
        f"{shown}. About {more:,} more, drawn alike, would make it {width:g} wide: an estimate, "
        "as widths fall with the square root of the number"
    )


def out_folder(out: str) -> Path:
    """Return the folder for results, made if it is missing."""
    check_out_folder(out)
    return output_folder(out, "--out ")


def check_out_folder(out: str | None) -> None:
    """Refuse a path that cannot be the folder of the results, before they are computed.

    Raises:
        ConfigError: a URL.
        ShardError: a file, in one, or a folder that cannot be written.
    """
    if out is None:
        return
    check_places(out, FIGURES, key="--out ")


def _read_truth(kind: str, source: str, rows: Sequence[LabeledSolution]) -> Truth | None:
    if kind == "":
        return None
    if kind == "exact" and not source:
        return exact_truth(rows)
    if not source and kind.endswith((".jsonl", ".json", ".parquet", ".csv")):
        kind, source = "processbench", kind
    if not source and is_annotations(kind):
        kind, source = "people", kind
    if kind == "people" and is_annotations(source):
        return _read_people(rows, source)
    if kind == "processbench" and source:
        return judged_truth("processbench", rows, _read_usable(read_processbench, source))
    if kind == "prm800k" and source:
        return judged_truth("prm800k", rows, _read_usable(read_prm800k, source))
    if kind == "run" and source:
        others = list(read_labels(Store(source)))
        check_same_problems(rows, others, source)
        return judged_truth("run", rows, as_judged(others))
    raise ConfigError(
        f"--truth {kind}{':' if source else ''}{source}: must be exact, processbench:FILE, "
        "prm800k:FILE, run:FOLDER or people:FOLDER (of `mclabel annotate`)"
    )


def _read_people(rows: Sequence[LabeledSolution], folder: str) -> Truth:
    """Return the truth by people's labels; a solution that was not drawn is unknown, though another
    reads the same.
    """
    annotated = Annotated.read(folder)
    digests = {item.id: item.digest for item in annotated.items}
    changed = [r for r in rows if text_digest(r) != digests.get(r.solution.id, text_digest(r))]
    if changed:
        raise DataError(
            f"--truth {folder}: people labelled other texts than the run has now of "
            f"{len(changed):,} solutions, the first being {changed[0].solution.id}. Give the run "
            "as it was, or have its solutions labelled anew, into another folder"
        )
    people = peoples_truth(annotated)
    if people.num_unsure or people.num_open:
        logger.warning(
            "%s: %d solutions have no first error, as people were unsure, gave up or found the "
            "problem bad, and %d are not submitted yet; they are left out",
            folder,
            people.num_unsure,
            people.num_open,
        )
    truth = judged_truth("people", rows, people.judged)
    own = {judgement.id for judgement in people.judged} & truth.first_errors.keys()
    if not own:
        return truth
    return replace(
        truth,
        first_errors={solution_id: truth.first_errors[solution_id] for solution_id in sorted(own)},
    )


def _read_usable(
    read: Callable[[str, RowRejects], list[JudgedSolution]], source: str
) -> list[JudgedSolution]:
    """Return the labels in a file of people's labels; rows that cannot be used are left out and
    logged.
    """
    left_out = RowRejects(source)
    judged = read(source, left_out)
    if left_out.found:
        first = left_out.found[0]
        logger.warning(
            "%s: %d rows cannot be used and are left out, the first being row %s: %s",
            source,
            len(left_out.found),
            first.row,
            first.detail,
        )
    return judged


def _read_reference(own: Store, other: Store, whose: str) -> Mapping[str, Counts]:
    """Return the counts of one completer's rollouts in the other run, per prefix.

    Rollouts on which the labels of this run rest too are left out.
    """
    metadata = [
        [table_metadata for table_metadata, _ in label_tables(store)] for store in (own, other)
    ]
    if all(table_metadata["rollouts"] for run in metadata for table_metadata in run):
        theirs = (rollout for rollout in read_rollouts(other) if rollout.completer == whose)
        return independent_counts(read_rollouts(own), theirs)
    seeds = [
        {table_metadata.get("config", {}).get("seed") for table_metadata in run} for run in metadata
    ]
    if seeds[0] & seeds[1]:
        logger.warning(
            "%s and %s were sampled with the same seed, and not both keep their rollouts: shared "
            "rollouts cannot be told apart, so interval coverage is not measured",
            own.location,
            other.location,
        )
        return {}
    return {
        step.prefix_id: row.value_counts(number)
        for row in read_labels(other)
        if row.values_of == whose
        for number, step in enumerate(row.steps)
    }


def _judge_rates(store: Store, rows: Sequence[LabeledSolution]) -> Mapping[str, Any]:
    """Return the error rates that `mclabel combine` learned per judge; empty for other runs."""
    if all(row.consensus is None for row in rows):
        return {}
    metadata, _ = next(label_tables(store))
    rates: Mapping[str, Any] = metadata.get("judge_rates", {})
    return rates


def _write_report(report: LabelReport, folder: Path) -> None:
    (folder / "labels.json").write_text(json_text(report), encoding="utf-8")
    (folder / "labels.md").write_text(markdown(label_grids(report)), encoding="utf-8")
    everything = report.groups[ALL]
    plots = {"reliability": calibration_plot(everything), "positions": position_plot(everything)}
    for name, plot in plots.items():
        if plot is not None:
            save_plot(plot, folder / name)
