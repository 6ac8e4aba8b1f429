"""Plots: names appear only as text, output is reproducible, and ids are unique in a page."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from mclabel.core.stats.bootstrap import Estimate
from mclabel.evaluate.best_of_n.show import plot_accuracy_curves
from mclabel.evaluate.labels.show import compute_share_points, plot_reliability_curves
from mclabel.show.figures import MAX_NAME, Plot, Series, make_name_printable, render_svg
from tests.support.shown import HOSTILE, SCORED, evaluation, plain_run, report_page

NAMES = [
    *(text for name, text in HOSTILE.items() if name != "long line"),
    "a" * 10_000,
    "$x$",
    r"\frac",
    "_hidden",
    "two\nlines",
    "\ud800\ufffe",
    ' id="figure_1" xlink:href="#a"',
    "漢字🙂",
    "%s {0}",
]


def hostile_plot() -> Plot:
    series = [
        Series(name=name, x=[1, 2], y=[0, 1], low=[0, 0], high=[1, 1], hue=hue)
        for hue, name in enumerate(NAMES)
    ]
    return Plot(
        title=NAMES[0],
        x_label=NAMES[1],
        y_label=NAMES[2],
        series=series,
        rows=NAMES,
        ticks=dict(enumerate(NAMES)),
        legend_title="$y$ <b>",
        size=(10, 20),
    )


def test_hostile_names_are_text_of_bounded_length(recwarn: pytest.WarningsRecorder) -> None:
    markup = render_svg(hostile_plot(), "one")
    assert not recwarn.list
    assert markup == render_svg(hostile_plot(), "one")
    assert all(c.isprintable() for c in markup)
    root = ElementTree.fromstring(markup)
    assert {node.tag for node in root.iter()} <= {
        "svg",
        "g",
        "defs",
        "path",
        "use",
        "text",
        "clipPath",
        "rect",
    }
    words = {node.text or "" for node in root.iter("text")}
    assert {make_name_printable(name) for name in NAMES} <= words
    assert {"$x$", " _hidden", "two\\u000alines", "\\ud800\\ufffe", "漢字🙂"} <= words
    assert max(map(len, words)) <= MAX_NAME + 20
    twins = [Series(name=f"{'a' * 50}{n}{'a' * 50}", x=[0], y=[0], hue=n) for n in (0, 1)]
    # both names are cut to the same words, and both are shown
    assert (
        render_svg(Plot(title="t", x_label="x", series=twins), "two").count(
            f">{make_name_printable(twins[0].name)}<"
        )
        == 2
    )
    assert make_name_printable("a" * 10_000) == "a" * 40 + "…" + "a" * 19


def test_no_id_is_twice_in_a_page_and_every_reference_is_to_its_own_plot(tmp_path: Path) -> None:
    runs = [plain_run(tmp_path / "run"), evaluation(tmp_path / "best", **SCORED)]
    page = (
        report_page(runs, str(tmp_path / "page.html"))
        .read_text(encoding="utf-8")
        .partition("<body>")[2]
    )
    plots = re.findall(r"<svg .*?</svg>", page, flags=re.DOTALL)
    assert len(plots) == 7
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    for plot in plots:
        own_ids = set(re.findall(r'\sid="([^"]+)"', plot))
        refers = set(re.findall(r'(?:url\(|href=")#([^")]+)', plot))
        assert refers and refers == own_ids


def test_of_many_numbered_ticks_some_have_no_name_but_words_all_do() -> None:
    for count, named in ((5, 5), (100, 34)):
        names = [*map(str, range(count)), "none", "undecided"]
        bars = Series(name="", x=range(count + 2), y=[1] * (count + 2), kind="bars", hue=0)
        plot = Plot(title="t", x_label="x", series=[bars], ticks=dict(enumerate(names)))
        words = [
            node.text or "" for node in ElementTree.fromstring(render_svg(plot, "x")).iter("text")
        ]
        assert {"none", "undecided"} <= set(words)
        assert len([word for word in words[: words.index("x")] if word.isdigit()]) == named


def test_best_of_n_has_a_line_a_method_and_the_best_first_in_the_legend() -> None:
    means = {"random": 0.4, "majority": 0.5, "prm:last": 0.6, "prm:min": 0.7, "vote:prm": 0.9}
    accuracy = {
        method: {n: Estimate(value=m, low=m - 0.1, high=m + 0.1) for n in (1, 2, 6)}
        for method, m in means.items()
    }
    plot = plot_accuracy_curves("t", accuracy, references=["prm"])
    names = [series.name for series in plot.series if series.name]
    assert names == ["prm:last, 60.0%", "majority, 50.0%", "random, 40.0%"]
    assert [series.is_thin for series in plot.series] == [True, True, False, False, False]
    assert {series.dash for series in plot.series if series.hue == 0} == {"-."}
    assert [series.name for series in plot.series if series.is_band] == names[:2]
    assert list(plot.ticks.values()) == ["1", "2", "6"]


def test_reliability_shows_shares_with_their_intervals_and_counts() -> None:
    first, last = compute_share_points(
        np.array([0.05, 0.05, 1.0, np.nan, 0.5]), np.array([0.0, 1.0, 1.0, 1.0, np.nan])
    )
    assert (first.predicted, first.observed, first.num_predictions) == (0.05, 0.5, 2)
    assert (last.observed, last.high) == (1.0, 1.0)
    plot = plot_reliability_curves("t", {"a": [first, last], "nothing": []})
    assert [series.name for series in plot.series] == ["perfect", "a"]
    assert plot.below is not None
    assert list(plot.below.series[0].y) == pytest.approx([2 / 3, *[0] * 8, 1 / 3])
