"""The report's parts on trainings: of scorers, and of policies by reinforcement learning."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mclabel.core.errors import DataError
from mclabel.report.page.html import Fact, Html, card, details, draw, figure, join, table
from mclabel.rl.measure import changes
from mclabel.rl.training.record import MEASURED, read_log, read_measured, read_samples
from mclabel.run.kinds import TRAINING, Run, read_json
from mclabel.run.shards.manifest import flat
from mclabel.show.figures import Plot, Series

MAX_SHOWN = 3
"""Solutions that are shown before and after."""
PLOTS: Mapping[str, tuple[str, str]] = {
    "pass_at_1": ("Right answers", "share of solutions"),
    "lucky": ("Right answers through wrong steps", "share of right answers"),
    "sound": ("Solutions without a wrong step", "share of solutions"),
    "pass_at_16": ("Problems solved by one of 16", "share of problems"),
    "length": ("Length of a solution", "tokens"),
    "steps": ("Steps of a solution", "steps"),
    "prm_less_outcome": ("PRM above outcome", "mean lowest score less share right"),
    "kl": ("Distance from the first policy", "KL divergence of a token, nats"),
    "prm_brier": ("Error of the PRM on the policy's solutions", "Brier score of the lowest score"),
}
"""Figures of the measurements that have a plot, with its title and axis."""
LOGGED: Mapping[str, tuple[str, str]] = {
    "prm_less_outcome": (
        "PRM above outcome in training",
        "mean lowest score less share right",
    ),
    "kl": ("Distance from the first policy in training", "KL divergence of a token, nats"),
    "entropy": ("Entropy of a token", "nats"),
    "refused": ("Solutions without a reward for their form", "share of solutions"),
}
"""Figures of the log that have a plot."""

_TRAINED_ON = {
    "num_solutions": "solutions trained on",
    "num_validation": "solutions held out for validation",
    "num_unlabeled": "solutions left out, without a label",
    "num_refused": "solutions left out, not encodable",
}
"""Counts of a training's report."""

Curve = tuple[list[float], list[float]]


def reinforced_part(runs: Sequence[Run]) -> Html:
    """Everything about some trainings of policies, side by side.

    Raises:
        DataError: a measurement cannot be read.
    """
    measured = {run.name: _measured(run) for run in runs}
    logged = {run.name: _logged(run) for run in runs}
    figures = [
        _figure(f"{prefix}-{name.replace('_', '-')}", title, axis, curves)
        for prefix, source, plots in (("rl", measured, PLOTS), ("rl-log", logged, LOGGED))
        for name, (title, axis) in plots.items()
        if (curves := {run: found[name] for run, found in source.items() if name in found})
    ]
    return join(_summary(runs), _signs(runs), *figures, *(_solutions(run) for run in runs))


def reinforced_card(runs: Sequence[Run]) -> Html:
    """The card of the head: right answers before and after."""
    facts = [_change(run) for run in runs]
    if len(facts) == 1:
        (fact,) = facts
        return card("What was trained", fact.figure, f"right answers, {fact.more}")
    words = "right answers before and after"
    return card("What was trained", f"{len(facts)} policies", words, facts)


def _change(run: Run) -> Fact:
    """Right answers on problems that a policy was not trained on."""
    found = read_measured(Path(run.location))
    if not found:
        return Fact(run.name, "Not measured", "as measured=null")
    first, last = found[min(found)], found[max(found)]
    return Fact(
        run.name,
        f"{first.pass_at(1):.1%} → {last.pass_at(1):.1%}",
        f"after {max(found)} steps, on {len(last.problems)} problems",
    )


def _measured(run: Run) -> dict[str, Curve]:
    """By name, steps and figures of the measurements."""
    found: dict[str, Curve] = {}
    for step, one in sorted(read_measured(Path(run.location)).items()):
        _add(found, step, one.summary())
    return found


def _logged(run: Run) -> dict[str, Curve]:
    found: dict[str, Curve] = {}
    for line in read_log(Path(run.location)):
        _add(found, line["step"], line)
    return found


def _add(found: dict[str, Curve], step: float, figures: Mapping[str, float]) -> None:
    for name, value in figures.items():
        steps, values = found.setdefault(name, ([], []))
        steps.append(step)
        values.append(value)


def _figure(identity: str, title: str, axis: str, curves: Mapping[str, Curve]) -> Html:
    series = [
        Series(name=name, x=steps, y=values, hue=hue)
        for hue, (name, (steps, values)) in enumerate(curves.items())
    ]
    rows = [
        [name, f"{values[0]:.4g}", f"{values[-1]:.4g}", f"{min(values):.4g}", f"{max(values):.4g}"]
        for name, (_, values) in curves.items()
    ]
    head = ["run", "first", "last", "lowest", "highest"]
    plot = Plot(title=title, x_label="optimizer step", y_label=axis, series=series)
    return figure(identity, plot, table(head, rows, caption=title))


def _summary(runs: Sequence[Run]) -> Html:
    """What was sampled, and how long it took."""
    rows: list[list[object]] = []
    for run in runs:
        lines = read_log(Path(run.location))
        rows.append(
            [
                run.name,
                len(lines),
                f"{_total(lines, 'num_tokens'):,.0f}",
                f"{_total(lines, 'num_value_tokens'):,.0f}",
                f"{_total(lines, 'seconds_sampling') / 60:.1f}",
                f"{_total(lines, 'seconds_credit') / 60:.1f}",
            ]
        )
    head = ["run", "steps", "tokens", "tokens for values", "minutes sampling", "minutes of credit"]
    return table(head, rows, caption="What was sampled")


def _signs(runs: Sequence[Run]) -> Html:
    """Whether the figures moved that a hacked reward moves."""
    rows: list[list[object]] = []
    for run in runs:
        found = read_measured(Path(run.location))
        if len(found) < 2:
            continue
        for one in changes(found[min(found)], found[max(found)]).values():
            low, high = one.change.low, one.change.high
            rows.append(
                [
                    run.name,
                    one.sign.words,
                    f"{one.before:.3f}",
                    f"{one.after:.3f}",
                    f"{one.change.value:+.3f} [{low:+.3f}, {high:+.3f}]",
                    "yes" if one.is_bad else "no",
                ]
            )
    if not rows:
        return Html("")
    head = ["run", "figure", "before", "after", "change", "a sign that the reward is hacked"]
    caption = "Before and after, on problems that are not trained on; 95% intervals over problems"
    return table(head, rows, caption=caption)


def _total(lines: Iterable[Mapping[str, float]], name: str) -> float:
    return sum(line.get(name, 0.0) for line in lines)


def _solutions(run: Run) -> Html:
    """The same problems before and after, those first whose outcome has changed."""
    folder = Path(run.location) / MEASURED
    steps = sorted(read_measured(Path(run.location)))
    if len(steps) < 2:
        return Html("")
    before, after = (
        read_samples(folder / f"{step}.samples.jsonl") for step in (steps[0], steps[-1])
    )
    pairs = sorted(
        zip(before, after, strict=False), key=lambda pair: pair[0]["outcome"] == pair[1]["outcome"]
    )
    return draw(
        "before_and_after",
        title=f"{run.name}: the same problems before and after",
        pairs=pairs[:MAX_SHOWN],
        num_steps=steps[-1],
    )


def read_training(run: Run) -> Mapping[str, Any]:
    """What a training reports of its data and its validation; empty before it has ended."""
    return read_json(run.store, "model/report.json") or {}


def training_part(runs: Sequence[Run]) -> Html:
    """Everything about some trainings, side by side."""
    manifests = [read_json(run.store, TRAINING) or {} for run in runs]
    reports = [read_training(run) for run in runs]
    configs = [flat(manifest.get("config", {})) for manifest in manifests]
    head = ["", *(run.name for run in runs)]
    rows: list[list[object]] = [
        [words, *(setting(report.get(name, "-")) for report in reports)]
        for name, words in _TRAINED_ON.items()
    ]
    validation = [report.get("validation", {}) for report in reports]
    rows += [
        [
            f"validation: {name.replace('num_', '').replace('_', ' ')}",
            *("-" if v.get(name) is None else setting(v[name]) for v in validation),
        ]
        for name in dict.fromkeys(key for found in validation for key in found)
        if name != "num_solutions" and any(found.get(name) for found in validation)
    ]
    keys = sorted({key for config in configs for key in config})
    differs = [len({str(config.get(key)) for config in configs}) > 1 for key in keys]
    settings = [[key, *(setting(config.get(key, "-")) for config in configs)] for key in keys]
    return join(
        table(head, rows, caption="What the scorers were trained on, and how they do"),
        _losses(runs),
        details(
            "Configuration",
            table(head, settings, caption="Configuration", marked=differs),
        ),
    )


def _losses(runs: Sequence[Run]) -> Html:
    series, rows = [], list[list[object]]()
    for hue, run in enumerate(runs):
        points = [(e["step"], e["loss"]) for e in _log(run) if "loss" in e]
        if not points:
            continue
        steps, losses = (list(column) for column in zip(*points, strict=True))
        series.append(Series(name=run.name, x=steps, y=losses, hue=hue))
        rows.append([run.name, steps[-1], f"{losses[0]:.4f}", f"{losses[-1]:.4f}"])
    if not series:
        return Html("")
    head = ["scorer", "steps", "first", "last"]
    numbers = table(head, rows, caption="Training loss, mean of ten steps")
    if all(len(one.x) < 2 for one in series):  # no curve
        return numbers
    plot = Plot(
        title="Training loss",
        x_label="optimizer step",
        y_label="loss, mean of ten steps",
        series=series,
    )
    return figure("losses", plot, numbers)


def _log(run: Run) -> list[dict[str, Any]]:
    raw = run.store.read("log.jsonl") or b""
    try:
        return [json.loads(line) for line in raw.splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise DataError(f"{run.location}/log.jsonl: not valid JSON lines ({error})") from error


def setting(content: object) -> str:
    """A value of a configuration as a cell."""
    if isinstance(content, float):
        return f"{content:.4g}"
    return content if isinstance(content, str) else json.dumps(content)
