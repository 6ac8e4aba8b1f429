"""How plots look: readable on a light page and on a dark one alike, the same bytes every time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#7a7a7a"
"""Of text and axes."""
HUES = ("#2f81d8", "#c9700c", "#2a9461", "#c04fa0", "#8a6fd6", "#a08016")
"""Of series, at least 3:1 against white and against a dark page; with INK nothing else is used."""
LIGHT_PAGE, DARK_PAGE = "#ffffff", "#0d1117"
BAND_ALPHA = 0.22


@contextmanager
def plot_style() -> Iterator[None]:
    """Within it figures have no background, and ink that shows on any."""
    import matplotlib

    matplotlib.use("Agg")
    settings: dict[Any, Any] = {
        "savefig.transparent": True,
        "svg.hashsalt": "mclabel",
        "svg.fonttype": "path",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "grid.color": INK,
        "grid.alpha": 0.3,
        "legend.frameon": False,
        "font.size": 10,
    }
    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor")
    settings |= dict.fromkeys((*inked, "xtick.color", "ytick.color", "legend.labelcolor"), INK)
    with matplotlib.rc_context(settings):
        yield


def save_plot(figure: Figure, stem: Path) -> None:
    """Write `stem`.png and `stem`.svg, without a date."""
    figure.savefig(stem.with_suffix(".png"), dpi=130, metadata={"Software": None})
    figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})
