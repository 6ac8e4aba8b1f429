"""Cards at the head of the report: a title, one large figure with its interval, and a few more."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from mclabel.core.stats.bootstrap import Estimate
from mclabel.report.page.html import Html, tag

_REACH = 0.3
"""Largest difference that a signed bar can show; what is beyond lies at its end."""


class Fact(NamedTuple):
    """A line of a card."""

    name: str
    figure: object
    more: str = ""
    """The figure's interval, or a remark."""


def card(
    title: str,
    figure: object,
    words: object = "",
    facts: Iterable[Fact] = (),
    *,
    bar: Html | None = None,
    note: object = "",
    quiet: bool = False,
) -> Html:
    """One card.

    Args:
        title: what it is about.
        figure: the one to remember.
        words: what the figure is, with its interval.
        facts: further figures.
        bar: of the interval.
        note: how far to trust it.
        quiet: whether there is nothing to remember, only why.
    """
    lines = [
        tag(
            "div",
            tag("dt", fact.name),
            tag("dd", fact.figure, tag("small", fact.more) if fact.more else ""),
        )
        for fact in facts
    ]
    return tag(
        "article",
        tag("h3", title),
        tag("p", figure, class_="figure-large"),
        bar or "",
        tag("p", words) if words else "",
        tag("dl", *lines) if lines else "",
        tag("p", note, class_="quiet") if note else "",
        class_="card quiet-card" if quiet else "card",
    )


def range_bar(estimate: Estimate, *, signed: bool = False) -> Html:
    """A scale with the interval and the figure on it; the text beside it has the same content.

    Args:
        estimate: a share in [0, 1], or a difference between shares.
        signed: it is a difference: the scale has zero in its middle.
    """
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return Html("")
    at, low, high = (
        min(1.0, max(0.0, 0.5 + end / (2 * _REACH) if signed else end))
        for end in (estimate.value, estimate.low, estimate.high)
    )
    inner = (tag("span", class_="ends"), tag("span", class_="dot"))
    return tag(
        "span",
        *(tag("span", class_="zero") if signed else "", *inner),
        class_="range-bar",
        style=f"--at:{at:.4f};--from:{low:.4f};--to:{high:.4f}",
        aria_hidden="true",
    )


_AMOUNTS = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"), (1e4, "thousand"))


def percent(estimate: Estimate) -> str:
    """`61%`; with a decimal where the interval is narrow; `-` without a figure."""
    if estimate.value is None:
        return "-"
    return f"{estimate.value:.{_decimals(estimate)}%}"


def percent_range(estimate: Estimate) -> str:
    """`49 to 73%`."""
    if estimate.low is None or estimate.high is None:
        return "-"
    decimals = _decimals(estimate)
    return f"{estimate.low * 100:.{decimals}f} to {estimate.high:.{decimals}%}"


def points(estimate: Estimate) -> str:
    """`+12 points`, of a difference between shares."""
    if estimate.value is None:
        return "-"
    return f"{_signed(estimate.value, _decimals(estimate))} points"


def points_range(estimate: Estimate) -> str:
    """`+8 to +16`."""
    if estimate.low is None or estimate.high is None:
        return "-"
    decimals = _decimals(estimate)
    return f"{_signed(estimate.low, decimals)} to {_signed(estimate.high, decimals)}"


def amount(count: float) -> str:
    """`8,214`, `52 thousand`, `1.3 million`."""
    for size, name in _AMOUNTS:
        if count >= size:
            scaled = count / size * (10 if name == "thousand" else 1)
            return f"{scaled:.{1 if scaled < 10 else 0}f} {name}"
    return f"{count:,.0f}"


def duration(seconds: float) -> str:
    """`28 s`, `2 min 5 s`, `3 h 20 min`, `2 d 4 h`."""
    whole = round(seconds)
    units = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
    for (name, size), (smaller, part) in pairwise(units):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {name}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def plural(count: int, noun: str) -> str:
    """`1 problem`, `2,000 problems`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _decimals(estimate: Estimate) -> int:
    """One decimal where whole points would hide the interval."""
    if estimate.low is None or estimate.high is None:
        return 0
    return 1 if estimate.high - estimate.low < 0.03 else 0


def _signed(value: float, decimals: int) -> str:
    """Never `-0`."""
    shown = f"{value * 100:+.{decimals}f}"
    return f"{0:.{decimals}f}" if float(shown) == 0 else shown
