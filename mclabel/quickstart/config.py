"""Configuration of the quickstart."""

from __future__ import annotations

from typing import Annotated, Literal

from mclabel.core.settings import OPERATIONAL, Settings

Model = Literal["arith:policy", "smollm2:135m"]
Size = Literal["small", "full"]


class QuickstartConfig(Settings):
    """The quickstart: labels, a PRM and better answers on the bundled domain."""

    out: Annotated[str, OPERATIONAL] = "runs/quickstart"
    """Output folder for the results."""
    model: Model = "arith:policy"
    """Model that writes solutions. `smollm2:135m`, a real one, takes packages of its own and up to
    15 minutes."""
    size: Size = "full"
    """`small` runs fast, for a first look; `full` gives meaningful metrics."""
