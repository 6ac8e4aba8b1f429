"""`mclabel report`: one HTML file that shows whether labels, and what came of them, can be trusted.

It needs no network and no server. Every plot has its numbers as a table below it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

from mclabel.core.errors import ConfigError
from mclabel.core.stats.bootstrap import Estimate
from mclabel.evaluate.labels.quality import LabelQuality
from mclabel.evaluate.labels.show import QUALITY_ROWS
from mclabel.report.page import run_charts
from mclabel.report.page.choices import best_of_n_part, read_evaluation
from mclabel.report.page.example import trees_part
from mclabel.report.page.facts import Group, JobFacts, RunFacts, run_facts
from mclabel.report.page.headline import headline
from mclabel.report.page.health import health_part
from mclabel.report.page.html import Html, details, duration, join, page, paragraph, ranged, table
from mclabel.report.page.trainings import (
    read_training,
    reinforced_card,
    reinforced_part,
    setting,
    training_part,
)
from mclabel.run.kinds import Run, find_runs
from mclabel.run.outputs import output_file
from mclabel.show.texts import DESCRIBED, SELECTED

_NOTE = (
    "First error found: labelled where it truly is, none for none. Where there is one: of "
    "solutions with an error in truth. Precision and recall: of wrong steps. False positives: of "
    "sound steps. Lucky answers: right through a wrong step."
)
_MORE = (
    " pass@1: solutions that end right. Wrong steps: in truth. Decided: solutions of which a first "
    "error, or that there is none, is labelled. F1: of precision and recall. Kappa: agreement of "
    "labels and truth beyond chance, over steps."
)
_GROUP_FIGURES = {
    "first error found": "first_error_accuracy",
    "where there is one": "first_error_accuracy_wrong",
    "precision": "precision",
    "recall": "recall",
    "false positives": "false_positive_rate",
    "lucky answers": "right_through_wrong",
}


def write_report(places: Sequence[str], out: str) -> Path:
    """Write the report.

    Args:
        places: outputs of `mclabel label`, `eval best-of-n`, `train` and `rl`, or folders that
            hold some.
        out: HTML file; one that is there is replaced.

    Returns:
        Where it lies.

    Raises:
        ShardError: a place is no run, or is of another version.
        ConfigError: `out` cannot be written.
    """
    runs = find_runs(places)
    path = output_file(out, "-o ")
    content = make_report(runs)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(content, encoding="utf-8", errors="backslashreplace")
        partial.replace(path)
    except OSError as error:
        raise ConfigError(f"-o {out}: cannot be written ({error.strerror})") from error
    return path


def make_report(runs: Sequence[Run]) -> str:
    """The page."""
    labelled = [run_facts(run) for run in runs if run.kind == "labels"]
    chosen = {run.name: read_evaluation(run) for run in runs if run.kind == "best_of_n"}
    trained = [run for run in runs if run.kind == "prm"]
    trainings = {run.name: read_training(run) for run in trained}
    reinforced = [run for run in runs if run.kind == "rl"]
    only_policies = len(reinforced) == len(runs)
    head = reinforced_card(reinforced) if only_policies else headline(labelled, chosen, trainings)
    sections: list[tuple[str, str, Html]] = [("headline", "In short", head)]
    if labelled:
        sections += [
            ("health", "Health of the run", health_part([r for r in runs if r.kind == "labels"])),
            ("runs", "What was run", _what_was_run(labelled)),
            ("quality", "Label quality", _quality(labelled)),
            ("step-values", "Values of steps", _values(labelled)),
        ]
        if (kinds := _kinds(labelled)) is not None:
            sections.append(("kinds", "By kind of problem", kinds))
    sections += _trees(runs)
    for number, (run_name, report) in enumerate(chosen.items()):
        name = f"Best of N: {run_name}" if len(chosen) > 1 else "Best of N"
        sections.append((f"choice-{number}", name, best_of_n_part(report, f"n{number}")))
    if trained:
        sections.append(("scorers", "Scorers", training_part(trained)))
    if reinforced:
        sections.append(("policies", "Policies", reinforced_part(reinforced)))
    names = ", ".join(run.name for run in runs)
    return page(f"mclabel: {names}"[:120], names, sections)


def _trees(runs: Sequence[Run]) -> list[tuple[str, str, Html]]:
    """A section for each run of a search."""
    found = [(run, trees_part(run.store)) for run in runs if run.kind == "labels"]
    return [
        (f"trees-{number}", f"Trees: {run.name}", part)
        for number, (run, part) in enumerate(found)
        if part is not None
    ]


def _what_was_run(runs: Sequence[RunFacts]) -> Html:
    head = ["", *(run.name for run in runs)]
    counts = [row for row in _rows([_held(run) for run in runs]) if {*row[1:]} != {"-"}]
    if any(run.job for run in runs):
        counts += _rows([_spent(run.job) for run in runs])
    else:
        counts.append(["time, GPU-hours, faults", *("not recorded" for _ in runs)])
    settings, changed = [], []
    for key in sorted({key for run in runs for key in run.config}):
        cells = [setting(run.config.get(key, "not there")) for run in runs]
        differs = len({str(run.config.get(key)) for run in runs}) > 1
        settings.append([f"{key} (differs)" if differs else key, *cells])
        if differs:
            changed.append([key, *cells])
    versions = [
        [key, *(run.versions.get(key, "") for run in runs)]
        for key in sorted({key for run in runs for key in run.versions})
    ]
    parts = [table(head, counts, caption="What the runs hold, and what they cost")]
    if changed:
        parts.append(table(head, changed, caption="Settings that differ"))
    marked = [name.endswith(" (differs)") for name, *_ in settings]
    opened = [
        table(head, settings, caption="Semantic configuration", marked=marked),
        table(head, versions, caption="Versions"),
    ]
    return join(*parts, details("Configuration and versions", *opened))


def _rows(columns: Sequence[Mapping[str, str]]) -> list[list[str]]:
    """Rows of a table, by their names, from columns that have the same ones."""
    return [[name, *(column[name] for column in columns)] for name in columns[0]]


def _held(run: RunFacts) -> dict[str, str]:
    """What a run holds, and what its rollouts cost."""
    outcomes = dict(run.all.outcomes)
    counts = {
        "problems": run.all.num_problems,
        "solutions": run.all.num_solutions,
        **{
            f"of them {name}": outcomes.get(name, 0)
            for name in ("right", "wrong", "truncated", "ungraded")
        },
        **{f"steps: {name}": run.hard[name] for name in ("sound", "wrong", "no verdict")},
    }
    shared = run.cost.tokens_per_solution
    return {
        **{name: f"{count:,}" for name, count in counts.items()},
        "kept": run.kept or "-",
        "rollouts": f"{run.num_rollouts:,}",
        "rollout tokens": f"{shared * run.all.num_solutions:,.0f}",
        "rollout tokens a solution": f"{shared:,.0f}",
        "the same if no prefix were shared": f"{run.cost.tokens_per_solution_unshared:,.0f}",
        "label sources": ", ".join(f"{k} {v:,}" for k, v in run.sources.most_common()),
    }


def _spent(job: JobFacts | None) -> dict[str, str]:
    """What the job of a run took; the same names where it is not recorded."""
    names = (
        *("starts of the job", "time", "GPU-hours", "engines lost and survived"),
        "completions taken over after a kill",
    )
    if job is None:
        return dict.fromkeys(names, "not recorded")
    cells = (
        f"{job.num_starts}",
        duration(job.elapsed_s),
        f"{job.gpu_hours:,.2f}" if job.gpu_hours else "none",
        f"{job.num_failures}",
        f"{job.num_replayed:,}",
    )
    return dict(zip(names, cells, strict=True))


def _quality(runs: Sequence[RunFacts]) -> Html:
    known = {run.name: run.all.quality for run in runs if run.all.quality is not None}
    parts = []
    if known:
        rows: list[list[object]] = [
            [name, *(f"{getattr(q, f'num_{name}'):,}" for q in known.values())]
            for name in ("problems", "solutions")
        ]
        rows += [
            [name.strip(), *(_estimate(getattr(q, field)) for q in known.values())]
            for name, field in QUALITY_ROWS.items()
        ]
        numbers = table(["", *known], rows, caption="Labels against exact truth [95% interval]")
        parts += [
            run_charts.quality_plot(known, "quality-plot", numbers),
            paragraph(_NOTE + _MORE, "quiet"),
        ]
    else:
        parts.append(
            paragraph(
                "The truth of these steps is not known, so what can be shown is how labels hang "
                "together: with outcomes below, and between runs."
            )
        )
    for run in runs:
        if run.describes is not None:
            words = DESCRIBED[run.describes] if run.name in known else SELECTED
            parts.append(paragraph(f"{run.name}: {words}", "quiet"))
    parts.append(run_charts.error_plot(runs))
    if len(runs) > 1:
        parts.append(_agreement(runs))
    return join(*parts)


def _agreement(runs: Sequence[RunFacts]) -> Html:
    rows: list[list[object]] = []
    for one, other in combinations(runs, 2):
        both = one.first_errors.keys() & other.first_errors.keys()
        same = sum(one.first_errors[key] == other.first_errors[key] for key in both)
        either = [
            key
            for key in both
            if one.first_errors[key] is not None or other.first_errors[key] is not None
        ]
        agreed = sum(one.first_errors[key] == other.first_errors[key] for key in either)
        rows.append(
            [
                f"{one.name}, {other.name}",
                len(both),
                f"{same / len(both):.3f}" if both else "-",
                f"{agreed / len(either):.3f}" if either else "-",
            ]
        )
    head = [
        "runs",
        "distinct solutions decided in both",
        "same first error",
        "where either has one",
    ]
    return table(head, rows, caption="Agreement of runs on the same solutions")


def _values(runs: Sequence[RunFacts]) -> Html:
    plots = [
        run_charts.value_plot(runs),
        run_charts.truth_plot(runs),
        run_charts.place_plot(runs),
    ]
    shown = [plot for plot in plots if plot is not None]
    return join(*shown) if shown else paragraph("No step of these runs has a value.")


def _kinds(runs: Sequence[RunFacts]) -> Html | None:
    parts = []
    for run in runs:
        for key, groups in run.groups.items():
            with_truth = any(group.quality for group in groups.values())
            figures = _GROUP_FIGURES if with_truth else {}
            name = key.replace("_", " ")
            rows = [_group_row(kind, group, figures) for kind, group in groups.items()]
            title = f"{run.name}: by {name}" if len(runs) > 1 else f"By {name}"
            head = [name, "problems", "solutions", "right", "labelled with an error", *figures]
            parts.append(table(head, rows, caption=title))
    return join(*parts, paragraph(_NOTE, "quiet")) if parts else None


def _group_row(kind: str, group: Group, figures: Mapping[str, str]) -> list[object]:
    count = group.num_solutions
    quality: LabelQuality | None = group.quality
    return [
        kind,
        group.num_problems,
        count,
        f"{group.outcomes.get('right', 0) / count:.2f}",
        f"{group.num_with_error / count:.2f}",
        *("-" if quality is None else _estimate(getattr(quality, f)) for f in figures.values()),
    ]


def _estimate(estimate: Estimate) -> Html:
    return ranged(estimate.value, estimate.low, estimate.high)
