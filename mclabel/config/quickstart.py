"""Configuration of the quickstart."""

from __future__ import annotations

from typing import Annotated, Literal

from mclabel.settings import OPERATIONAL, Settings

Size = Literal["small", "full"]


class QuickstartConfig(Settings):
    """The quickstart: labels, a PRM and better answers on the bundled domain."""

    out: Annotated[str, OPERATIONAL] = "runs/quickstart"
    """Output folder for the results."""
    size: Size = "full"
    """`small` runs fast, for a first look; `full` takes longer and gives meaningful metrics."""
