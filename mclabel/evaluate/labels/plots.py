"""Plots of a label report: do the values hold, and how do they run along solutions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mclabel.core.stats.bootstrap import Estimate
from mclabel.evaluate.labels.calibration import Calibration
from mclabel.evaluate.labels.report import GroupReport
from mclabel.evaluate.labels.value_shape import Position
from mclabel.show.style import BAND_ALPHA, HUES, INK, plot_style, save_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = "osD^vP"


def draw_reliability(group: GroupReport, stem: Path) -> bool:
    """Save PNG and SVG: predicted against observed shares, and the number of predictions below.

    Bins are drawn at the mean of their predictions, bars are 95% intervals over problems.

    Returns:
        False, and no files, where there is nothing to draw.
    """
    if not group.calibration:
        return False
    import matplotlib.pyplot as plt

    with plot_style():
        figure, (axes, below) = plt.subplots(
            2, 1, figsize=(6.2, 6.8), height_ratios=[4, 1], sharex=True, layout="constrained"
        )
        axes.plot([0, 1], [0, 1], color=INK, linestyle=":", linewidth=1, label="perfect")
        width = 1 / (10 * (len(group.calibration) + 1))
        for number, (name, one) in enumerate(group.calibration.items()):
            _reliability(axes, name, one, number)
            centres = [(b.low + b.high) / 2 for b in one.bins]
            shift = (number - (len(group.calibration) - 1) / 2) * width
            counts = [b.num_predictions / one.num_predictions for b in one.bins]
            below.bar(np.array(centres) + shift, counts, width, color=HUES[number % len(HUES)])
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), ylabel="share that observed")
        axes.set_title(f"Do the values hold? {group.num_solutions:,} solutions", loc="left")
        figure.legend(loc="outside lower center", fontsize=8)
        axes.grid()
        below.set(xlabel="predicted", ylabel="share of steps", ylim=(0, None))
        save_plot(figure, stem)
        plt.close(figure)
    return True


def draw_positions(group: GroupReport, stem: Path) -> bool:
    """Save PNG and SVG: mean value by relative position, with bands; False if there are none."""
    if not group.positions:
        return False
    import matplotlib.pyplot as plt

    with plot_style():
        figure, axes = plt.subplots(figsize=(6.6, 4.4), layout="constrained")
        for number, (name, curve) in enumerate(group.positions.items()):
            _position(axes, name, curve, number)
        axes.set(xlim=(0, 1), ylim=(-0.02, 1.02))
        axes.set(xlabel="position in the solution", ylabel="mean value of a step")
        axes.set_title("Values along solutions", loc="left")
        axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
        axes.grid()
        save_plot(figure, stem)
        plt.close(figure)
    return True


def _reliability(axes: Axes, name: str, one: Calibration, number: int) -> None:
    predicted = [b.predicted for b in one.bins]
    observed, low, high = _ends([b.observed for b in one.bins])
    axes.errorbar(
        predicted,
        observed,
        yerr=[np.maximum(observed - low, 0), np.maximum(high - observed, 0)],
        marker=MARKERS[number % len(MARKERS)],
        color=HUES[number % len(HUES)],
        linewidth=1.4,
        capsize=2,
        label=f"{name} (ECE {one.ece.value:.3f}, Brier {one.brier.value:.3f})",
    )


def _position(axes: Axes, name: str, curve: Sequence[Position], number: int) -> None:
    at = [(part.low + part.high) / 2 for part in curve]
    mean, low, high = _ends([part.value for part in curve])
    hue = HUES[number % len(HUES)]
    axes.plot(at, mean, marker=MARKERS[number % len(MARKERS)], color=hue, label=name)
    axes.fill_between(at, low, high, color=hue, alpha=BAND_ALPHA, linewidth=0)


def _ends(estimates: Sequence[Estimate]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    value, low, high = (
        np.array([getattr(e, part) for e in estimates], dtype=np.float64)
        for part in ("value", "low", "high")
    )
    return value, low, high
