"""Types of the verbs' options."""

from __future__ import annotations

from math import isnan
from typing import Any

import click

SEED = click.IntRange(0)


class Share(click.FloatRange):
    """A number in [0, 1]; NaN, which no comparison refuses, is none."""

    name = "share"

    def __init__(self) -> None:
        super().__init__(0, 1)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number, or a usage error."""
        number: float = super().convert(value, param, ctx)
        if isnan(number):
            self.fail(f"{value} is not in the range 0<=x<=1.", param, ctx)
        return number
