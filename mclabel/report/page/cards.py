"""Cards at the head of the report: a title, one large figure with its interval, and a few more."""

from __future__ import annotations

from collections.abc import Iterable
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
