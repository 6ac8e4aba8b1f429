"""Makes the tables and the plot of `mclabel eval best-of-n`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from mclabel.core.stats.bootstrap import Estimate
from mclabel.evaluate.best_of_n.choosing import MAJORITY, PASS, RANDOM, parse_scorer_name
from mclabel.evaluate.best_of_n.figures import Accuracy, BestOfN, Difference, is_reference
from mclabel.evaluate.grouping import MIN_GROUP_PROBLEMS
from mclabel.show.figures import WIDTH, Grid, Plot, Series

METHOD_PHRASES = {MAJORITY: "majority vote", "likelihood:policy:sum": "the policy's likelihood"}
"""Names of methods in sentences, such as "the majority vote is better than ..."."""
NUM_SHOWN = 3
"""Maximum number of scorers in the table of groups."""


def make_best_of_n_grid(
    result: BestOfN, names: Mapping[str, str] | None = None, *, against: Sequence[str] = (MAJORITY,)
) -> Grid:
    """Return a table of accuracy by method and N, differences at the largest N, and pair accuracy.

    Pair accuracy is the share of pairs of a right and a wrong sample of one problem in which the
    right one scores higher.

    Args:
        result: results of the comparison. The scorers in `result.references` are shown last.
        names: displayed name of each method that is shown if the results contain it; None shows
            all methods by their own names.
        against: methods whose accuracy is subtracted from that of each shown method.
    """
    names = names or {method: method for method in result.accuracy}
    shown_as = {method: name for method, name in names.items() if method in result.accuracy}
    ranks = {m: 2 if m == PASS else int(is_reference(m, result.references)) for m in shown_as}
    every = list(result.accuracy[MAJORITY])
    columns = 4 if len(against) == 1 else 1  # what 80 characters hold
    shown_sizes = np.linspace(len(every) - 1, 0, min(columns, len(every) // 2 + 1))[::-1]
    sizes = [every[round(i)] for i in shown_sizes]
    rows = []
    for method in sorted(shown_as, key=lambda m: ranks[m]):
        differences = [
            None if method == PASS else result.difference(method, m, sizes[-1]) for m in against
        ]
        pairs = result.pair_accuracy.get(method)
        rows.append(
            (
                shown_as[method],
                *(f"{result.accuracy[method][size].value:.3f}" for size in sizes),
                *(
                    "" if difference is None else _format_difference(difference)
                    for difference in differences
                ),
                "" if pairs is None or pairs.value is None else f"{pairs.value:.2f}",
            )
        )
    references = [shown_as[method] for method, rank in ranks.items() if rank == 1]
    has_vote = any(name.startswith("vote:") for name in shown_as.values())
    note = (
        "pairs: share of pairs of a right and a wrong sample of one problem in which the right one "
        "scores higher."
        + (" vote: majority weighted by the scorer." if has_vote else "")
        + (" pass: at least one of the N samples is right." if PASS in shown_as else "")
        + (f" Upper references: {', '.join(references)}." if references else "")
    )
    # The conclusion is about a trained scorer, preferably a PRM.
    trained = [m for m in shown_as if m in result.pair_accuracy and not ranks[m]]
    trained = [m for m in trained if not m.startswith("likelihood:")]
    mine = next((m for m in trained if m.startswith("prm")), next(iter(trained), None))
    conclusions = [
        describe_difference(
            shown_as[mine], METHOD_PHRASES.get(m, shown_as[m]), margin, result.num_problems
        )
        for m in against
        if mine is not None and (margin := result.difference(mine, m, sizes[-1])) is not None
    ]
    return Grid(
        title=f"Best of N on {result.num_problems} problems [95% interval]",
        header=(
            "method",
            *(f"N={size}" for size in sizes),
            *(f"vs {shown_as[other]}, N={sizes[-1]}" for other in against),
            "pairs",
        ),
        rows=tuple(rows),
        note=note,
        conclusion=" ".join(conclusions),
    )


def describe_difference(
    method: str, other_method: str, difference: Difference, num_problems: int
) -> str:
    """Return a sentence on whether one method is better than another.

    The sentence says so only if the interval of the difference excludes 0.

    Args:
        method: displayed name of the first method.
        other_method: displayed name of the second method.
        difference: accuracy of the first method minus that of the second.
        num_problems: number of problems on which the methods were compared.
    """
    ends = f"{100 * difference.low:+.0f} to {100 * difference.high:+.0f} points"
    if difference.low <= 0 <= difference.high:
        few = f"with {num_problems:,} problems ({ends})"
        return f"{method} is not shown to be better than {other_method} {few}."
    how = "better" if difference.value > 0 else "worse"
    return (
        f"{method} is {how} than {other_method} "
        f"by {100 * abs(difference.value):.0f} points ({ends})."
    )


def make_group_grid(result: BestOfN) -> Grid:
    """Return a table of the accuracy at the largest N by group of problems, such as a level.

    Groups with fewer than `MIN_GROUP_PROBLEMS` problems are left out.
    """
    size = result.num_samples
    usable = [m for m in result.pair_accuracy if not is_reference(m, result.references)]
    best = sorted(usable, key=lambda m: -(result.accuracy[m][size].value or 0.0))[:NUM_SHOWN]
    methods = [RANDOM, MAJORITY, *best, PASS]
    rows = []
    for kind, groups in result.groups.items():
        for name, group in groups.items():
            if group.num_problems < MIN_GROUP_PROBLEMS:
                continue
            cells = [group.accuracy[m][size] for m in methods]
            shares = ["-" if e.value is None else f"{e.value:.2f}" for e in cells]
            rows.append((f"{kind}: {name}", str(group.num_problems), *shares))
    return Grid(
        title=f"By kind of problem, N={size}: the {len(best)} best scorers",
        header=("problems", "", *(method.replace(":", " ") for method in methods)),
        rows=tuple(rows),
    )


def make_over_optimisation_grid(result: BestOfN, num_fooled: Mapping[str, int]) -> Grid:
    """Return a table of each scorer's best N and its loss of accuracy from there to the largest N.

    Args:
        result: results of the comparison.
        num_fooled: number of problems, by scorer, on which the scorer gives a wrong sample a higher
            score than every right sample.
    """
    fallen = [
        name for name, comparison in result.over_optimisation.items() if comparison.fall.high < 0
    ]
    return Grid(
        title="Does a larger N help?",
        header=("scorer", "best N", f"N={result.num_samples} vs best N", "fooled"),
        rows=tuple(
            (
                name,
                str(comparison.best_size),
                ""
                if comparison.best_size == result.num_samples
                else _format_difference(comparison.fall),
                str(num_fooled[name]),
            )
            for name, comparison in result.over_optimisation.items()
        ),
        conclusion=f"More samples make the choice worse for {', '.join(fallen)}."
        if fallen
        else "More samples are not shown to make the choice of any scorer worse.",
        note="fooled: number of problems in which a wrong sample scores higher than all right "
        "samples; best_of_n.json has the problems with the widest gaps.",
    )


def _format_difference(estimate: Difference) -> str:
    value, low, high = (
        f"{number:+.2f}".replace("0.", ".", 1)
        for number in (estimate.value, estimate.low, estimate.high)
    )
    return f"{value} [{low}, {high}]"


_LINE_STYLES = {PASS: ":", MAJORITY: "-", RANDOM: "--"}


def select_main_methods(accuracy: Accuracy) -> list[str]:
    """Return the first method of each scorer, such as `NAME:last`; votes are left out."""
    first: dict[str, str] = {}
    for method in accuracy:
        if not method.startswith("vote:"):
            first.setdefault(parse_scorer_name(method), method)
    return list(first.values())


def plot_accuracy_curves(
    title: str,
    accuracy: Accuracy,
    *,
    references: Collection[str] = (),
    size: tuple[float, float] = (WIDTH, 5.6),
) -> Plot:
    """Plot accuracy against N, with one colour per scorer.

    The majority vote and the first scorer have bands of 95% confidence.

    Args:
        title: title of the plot.
        accuracy: accuracies by method, the most important methods first. Only the first method of
            each scorer that is not a vote is a thick line.
        references: names of scorers that serve only for comparison.
        size: width and height of the plot without its legend, in inches.
    """
    sizes = list(accuracy[MAJORITY])
    main = select_main_methods(accuracy)
    banded = [MAJORITY, *[method for method in main if method not in _LINE_STYLES][:1]]
    scorers = list(dict.fromkeys(parse_scorer_name(m) for m in accuracy if m not in _LINE_STYLES))

    series = []
    for method in sorted(accuracy, key=lambda m: -(accuracy[m][sizes[-1]].value or 0.0)):
        estimates = [accuracy[method][n] for n in sizes]
        is_main = method in main
        has_band = method in banded
        series.append(
            Series(
                name=f"{method}, {_format_percent(estimates[-1])}" if is_main else "",
                x=sizes,
                y=[estimate.value for estimate in estimates],
                low=[estimate.low for estimate in estimates] if has_band else (),
                high=[estimate.high for estimate in estimates] if has_band else (),
                is_band=has_band,
                hue=None if method in _LINE_STYLES else scorers.index(parse_scorer_name(method)),
                dash=_choose_line_style(method, references),
                is_thin=not is_main,
            )
        )
    notes = ["thin: other aggregations, dashed: votes"] if len(main) < len(accuracy) else []
    notes += ["dash and dot: upper references"] if references else []
    return Plot(
        title=title,
        x_label="N, samples to choose from",
        y_label="accuracy of the chosen answer",
        series=series,
        ticks={n: str(n) for n in sizes},
        log=2,
        is_percent=True,
        legend_title="; ".join(notes),
        size=size,
    )


def _choose_line_style(method: str, references: Collection[str]) -> str:
    if is_reference(method, references):
        return "-."
    return _LINE_STYLES.get(method, "--" if method.startswith("vote:") else "")


def _format_percent(estimate: Estimate) -> str:
    return "-" if estimate.value is None else f"{estimate.value:.1%}"
