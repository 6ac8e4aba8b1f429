"""Configuration of comparisons of searches."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Annotated

from pydantic import Field

from mclabel.core.settings import Chosen, at_most, rule
from mclabel.prm.scoring.aggregate import Aggregation
from mclabel.search.base import MAX_WIDTH, MethodSettings
from mclabel.search.config import SharedSearchConfig

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
RESERVED = ("best_of_n", "oracle", "scores", "trees")
"""Names of folders and files in an output, which no method may have."""


class SearchEvalConfig(SharedSearchConfig):
    """Comparison of search methods, with each other and with best-of-N at equal cost."""

    methods: dict[str, Annotated[MethodSettings, Chosen("searches", default="beam")]] = Field(
        min_length=1
    )
    """Methods to compare, as NAME: {kind: beam, n: 16}. NAME is the folder of the method's run in
    `out`."""
    best_of_n: list[
        Annotated[int, Field(ge=1), at_most(MAX_WIDTH, "all of a problem's are held in memory")]
    ] = Field([4, 16, 64], min_length=1)
    """Values of N for best-of-N, the reference, in rising order. The largest number is sampled
    regardless of `tokens`."""
    aggregate: Aggregation = "last"
    """How best-of-N makes one of a solution's step scores: `last`, `min`, `product`, `mean`, `max`
    or `log_odds`."""
    oracle: bool = False
    """Whether to run every method also with the scorer `exact`, which never errs. Needs problems of
    arith or pyarith."""
    group_by: list[str] = Field(["family", "level", "subject", "answer_type"])
    """Metadata fields of the problems by which results are grouped. Fields that no problem has are
    ignored."""

    @rule
    def _names_are_folders(self) -> str | None:
        for name in self.methods:
            if not _NAME.fullmatch(name) or name.lower() in RESERVED:
                return (
                    f"methods.{name[:80]}: names a folder, so it must have 1 to 64 letters, digits "
                    "and . _ -, begin with a letter or digit, and be none of "
                    f"{', '.join(RESERVED)}. Rename it"
                )
        return None

    @rule
    def _names_differ(self) -> str | None:
        first: dict[str, str] = {}
        for name in self.methods:
            if (other := first.setdefault(name.lower(), name)) != name:
                return (
                    f"methods.{name}: differs from methods.{other} only in capital letters, which "
                    "some file systems do not distinguish. Rename one of the two"
                )
        return None

    @rule
    def _sizes_rise(self) -> str | None:
        if any(a >= b for a, b in pairwise(self.best_of_n)):
            return (
                f"best_of_n={self.best_of_n}: sizes must rise. Write "
                f"best_of_n={sorted(set(self.best_of_n))}"
            )
        return None
