"""Solutions with their step values, and label quality, in the terminal.

Text of a model is shown as text: control characters are made visible, markup is not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from mclabel.evaluation.best_of_n import BestOfN, Difference, is_reference
from mclabel.evaluation.bootstrap import Estimate
from mclabel.evaluation.choosing import MAJORITY, PASS, RANDOM
from mclabel.evaluation.label_quality import LabelCost, LabelQuality
from mclabel.records import Consensus, LabeledSolution, Outcome, StepLabel
from mclabel.report.opinions import (
    Place,
    kept_word,
    opinions_words,
    places_by_step,
    rule_name,
)
from mclabel.report.terminal.grid import Grid, estimate_text, rich_table
from mclabel.report.texts import cut, step_body

MAX_SHOWN = 2000  # characters of one text
OUTCOME_STYLE = {
    Outcome.RIGHT: "green",
    Outcome.WRONG: "red",
    Outcome.TRUNCATED: "yellow",
    Outcome.UNGRADED: "yellow",
}


NUM_SHOWN = 3
"""Scorers beside each other."""


def show_solution(console: Console, row: LabeledSolution, truth: int | str | None = "") -> None:
    """Print a problem and one labelled solution.

    Args:
        console: where to.
        row: the solution.
        truth: index of the true first error, None for none; "" if it is not known.
    """
    head = Text(f"{row.problem.id}  sample {row.solution.sample_index}  ", style="bold")
    head.append(row.solution.outcome, style=OUTCOME_STYLE[row.solution.outcome])
    head.append(f"  answer {shown(row.solution.prediction or 'none')}")
    gold = row.problem.answer
    head.append(f", gold {shown(cut(gold) if row.problem.answer_is_json else gold)}", style="dim")
    console.print(head)
    console.print(Text(shown(row.problem.text)), style="dim")
    table = Table(box=None, padding=(0, 1), show_header=False)
    for column in ("mark", "value", "interval", "counts"):
        table.add_column(column, no_wrap=True)
    if row.consensus is not None:  # whose opinions name steps by their index
        table.add_column("index", justify="right", no_wrap=True)
    table.add_column("step", overflow="fold")
    places = places_by_step(row.consensus, row.solution.steps)
    for index, (step, label) in enumerate(zip(row.solution.steps, row.steps, strict=True)):
        table.add_row(
            _mark(index, row, truth),
            Text(_value(label), style=_style(label)),
            Text(_interval(label), style="dim"),
            Text(_counts(row, index), style="dim"),
            *([] if row.consensus is None else [Text(str(index), style="dim")]),
            step_text(step.text, _style(label), places.get(index, ())),
        )
    console.print(table)
    if row.consensus is not None:
        console.print(_consensus_line(row.consensus))
    console.print()


def shown(text: str) -> str:
    """`text` bounded, with every character that is not printable made visible."""
    cut = text[:MAX_SHOWN]
    safe = "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in cut)
    return safe + (f"… ({len(text) - MAX_SHOWN} more characters)" if len(text) > MAX_SHOWN else "")


QUALITY_ROWS = {
    "pass@1": "pass_at_1",
    "wrong steps": "wrong_steps",
    "decided": "decided",
    "first error found": "first_error_accuracy",
    "  where there is one": "first_error_accuracy_wrong",
    "precision": "precision",
    "recall": "recall",
    "F1": "f1",
    "kappa": "kappa",
    "false positives": "false_positive_rate",
    "lucky answers": "right_through_wrong",
}


def quality_table(groups: Mapping[str, LabelQuality]) -> Table:
    """Label quality against truth, a column a group of solutions."""
    table = Table(title="Labels against exact truth [95% interval]", title_justify="left")
    table.add_column("")
    for name in groups:
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("problems", "solutions"):
        table.add_row(name, *(f"{getattr(q, f'num_{name}'):,}" for q in groups.values()))
    for name, field in QUALITY_ROWS.items():
        table.add_row(name, *(_estimate(getattr(q, field)) for q in groups.values()))
    table.caption = (
        "first error found: labelled where it truly is, none for none. Precision and recall: of "
        "wrong steps. False positives: of sound steps. Lucky: right answers by a wrong step."
    )
    table.caption_justify = "left"
    return table


def best_of_n_table(
    result: BestOfN, names: Mapping[str, str] | None = None, *, against: Sequence[str] = (MAJORITY,)
) -> Table:
    """Accuracy by method and N, differences at the largest N, pair accuracy.

    Args:
        result: what to show; its references come last.
        names: the methods that are shown, and what they are called; all by their own names if None.
        against: methods that the others are compared with.
    """
    shown_as = {method: method for method in result.accuracy} if names is None else names
    ranks = {m: 2 if m == PASS else int(is_reference(m, result.references)) for m in shown_as}
    every = list(result.accuracy[MAJORITY])
    columns = 4 if len(against) == 1 else 1  # what 80 characters hold
    shown_sizes = np.linspace(len(every) - 1, 0, min(columns, len(every) // 2 + 1))[::-1]
    sizes = [every[round(i)] for i in shown_sizes]
    table = Table(
        title=f"Best of N on {result.num_problems} problems [95% interval]",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("method", no_wrap=True)
    for size in sizes:
        table.add_column(f"N={size}", justify="right", no_wrap=True)
    for number, other in enumerate(against):
        at = "" if number else f"{sizes[-1]}: "
        table.add_column(f"{at}less {shown_as[other]}", justify="right", min_width=17)
    table.add_column("pairs", justify="right", no_wrap=True)
    is_apart = False
    for method in sorted(shown_as, key=lambda m: ranks[m]):
        by_size = result.accuracy[method]
        if ranks[method] and not is_apart and result.references:
            table.add_section()
        is_apart = ranks[method] > 0
        cells = [f"{by_size[n].value:.3f}" for n in sizes]
        less = [None if method == PASS else result.less(method, m, sizes[-1]) for m in against]
        pairs = result.pair_accuracy.get(method)
        table.add_row(
            shown_as[method],
            *cells,
            *("" if one is None else _difference(one) for one in less),
            "" if pairs is None or pairs.value is None else f"{pairs.value:.2f}",
        )
    table.caption = (
        "pairs: of a right and a wrong sample of one problem, how often the right one scores "
        "higher. vote: majority weighted by the scorer. pass: some sample is right."
        + (" Below the line: upper references." if result.references else "")
    )
    table.caption_justify = "left"
    return table


def group_table(result: BestOfN) -> Table | None:
    """Accuracy at the largest N by kind of problem; None if all are of one kind."""
    if not result.groups:
        return None
    size = result.num_samples
    usable = [m for m in result.pair_accuracy if not is_reference(m, result.references)]
    best = sorted(usable, key=lambda m: -(result.accuracy[m][size].value or 0.0))
    methods = [RANDOM, MAJORITY, *best[:NUM_SHOWN], PASS]
    table = Table(
        title=f"By kind of problem, N={size}: the {len(best[:NUM_SHOWN])} best scorers",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("problems", no_wrap=True)
    table.add_column("", justify="right", no_wrap=True)
    for method in methods:
        table.add_column(method.replace(":", " "), justify="right")
    for kind, groups in result.groups.items():
        table.add_section()
        for name, group in groups.items():
            cells = [group.accuracy[m][size] for m in methods]
            shares = ["-" if e.value is None else f"{e.value:.2f}" for e in cells]
            table.add_row(f"{kind}: {name}", str(group.num_problems), *shares)
    return table


def over_optimisation_table(result: BestOfN, num_fooled: Mapping[str, int]) -> Table:
    """Where more samples make a scorer's choice worse, and how often it is fooled."""
    table = Table(
        title="Does more choice help?",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("scorer", no_wrap=True)
    for name in ("best N", "there", f"N={result.num_samples}", "change", "fooled"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, one in result.over_optimisation.items():
        change = "" if one.best_size == result.num_samples else _difference(one.fall)
        table.add_row(
            name,
            str(one.best_size),
            f"{one.best:.3f}",
            f"{one.last:.3f}",
            change,
            str(num_fooled[name]),
        )
    table.caption = (
        "fooled: problems with a right sample of which a wrong one scores higher; the widest gaps "
        "are in best_of_n.json."
    )
    table.caption_justify = "left"
    return table


def adaptive_table(result: BestOfN) -> Table | None:
    """What stopping early saves and costs; None where it was not measured."""
    if not result.adaptive:
        return None
    rows = [
        (
            name,
            estimate_text(one.accuracy),
            estimate_text(one.full),
            _change(one.less),
            f"{one.num_samples.value or 0:.1f}",
            estimate_text(one.tokens),
        )
        for name, one in result.adaptive.items()
    ]
    stop_when = next(iter(result.adaptive.values())).stop_when
    grid = Grid(
        title="Stopping early (adaptive)",
        header=("scorer", "right", f"from all {result.num_samples}", "change", "N", "tokens"),
        rows=tuple(rows),
        note=f"A problem's samples are drawn in order until the leader is sure (stop_when="
        f"{stop_when:g}). N: mean number drawn; tokens: share of those of all samples.",
    )
    return rich_table(grid)


def counts_table(rows: Sequence[LabeledSolution], cost: LabelCost) -> Table:
    """What a run holds and what it cost."""
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(style="dim")
    table.add_column(justify="right")
    outcomes = {o: sum(r.solution.outcome is o for r in rows) for o in Outcome}
    labels = [step.hard for row in rows for step in row.steps]
    table.add_row("problems", f"{len({r.problem.id for r in rows}):,}")
    table.add_row("solutions", f"{len(rows):,}")
    for outcome, count in outcomes.items():
        if count or outcome in (Outcome.RIGHT, Outcome.WRONG):
            table.add_row(f"  {outcome}", f"{count:,}")
    if (kept := num_kept(rows)) is not None:
        table.add_row("  kept by the consensus", f"{kept:,}")
    table.add_row("steps", f"{len(labels):,}")
    table.add_row("  labelled sound", f"{sum(x is True for x in labels):,}")
    table.add_row("  labelled wrong", f"{sum(x is False for x in labels):,}")
    table.add_row("  without a verdict", f"{sum(x is None for x in labels):,}")
    table.add_row("rollout tokens a solution", f"{cost.tokens_per_solution:,.0f}")
    table.add_row("  without sharing prefixes", f"{cost.tokens_per_solution_unshared:,.0f}")
    return table


def num_kept(rows: Sequence[LabeledSolution]) -> int | None:
    """Number of solutions that a consensus keeps; None of a run that is not combined."""
    found = [row.consensus.kept for row in rows if row.consensus is not None]
    return sum(found) if found else None


def _estimate(estimate: Estimate) -> str:
    return escape(estimate_text(estimate))


def _difference(estimate: Difference) -> str:
    """As markup."""
    return escape(_change(estimate))


def _change(estimate: Difference) -> str:
    value, low, high = (
        f"{number:+.2f}".replace("0.", ".", 1)
        for number in (estimate.value, estimate.low, estimate.high)
    )
    return f"{value} [{low}, {high}]"


def step_text(text: str, style: str, places: Sequence[Place]) -> Text:
    """A step with the places in it underlined, and below it what is wrong with each."""
    body, left = step_body(text)
    found = Text(shown(body), style=style)
    for place in places:
        # control characters take more room where they are shown
        start, end = (
            len(shown(body[: min(max(0, at - left), MAX_SHOWN)])) for at in (place.start, place.end)
        )
        found.stylize("bold underline", start, end)
    for place in places:
        found.append(f"\n  {shown(place.words)}", style="magenta")
    return found


def _consensus_line(consensus: Consensus) -> Text:
    line = Text(f"{shown(rule_name(consensus))}: ")
    line.append(kept_word(consensus), style="green" if consensus.kept else "bold yellow")
    told = ", ".join(f"{source}: {words}" for source, words in opinions_words(consensus))
    return line.append(f"  {shown(told)}", style="dim")


def _mark(index: int, row: LabeledSolution, truth: int | str | None) -> Text:
    labelled = index == row.first_error
    if truth == "":
        return Text("first error" if labelled else "", style="bold red")
    true = index == truth
    word = {
        (True, True): "first error",
        (True, False): "labelled error",
        (False, True): "true error",
        (False, False): "",
    }[labelled, true]
    return Text(word, style="bold red" if labelled == true else "bold magenta")


def _style(label: StepLabel) -> str:
    if label.hard is None:
        return "yellow"
    if not label.hard:
        return "red"
    return "green" if label.value is None or label.value >= 0.5 else "dark_green"


def _value(label: StepLabel) -> str:
    if label.value is not None:
        return f"{label.value:.2f}"
    return {True: "sound", False: "wrong", None: "?"}[label.hard]


def _interval(label: StepLabel) -> str:
    return "" if label.low is None else f"[{label.low:.2f}, {label.high:.2f}]"


def _counts(row: LabeledSolution, number: int) -> str:
    label = row.steps[number]
    counts = label.counts
    if not counts.num_rollouts:
        return label.source
    if by_completer := row.counts_by_completer(number):
        return by_completer
    extra = counts.num_truncated + counts.num_ungraded
    return f"{counts.num_right}/{counts.num_rollouts}" + (f" ({extra} undecided)" if extra else "")
