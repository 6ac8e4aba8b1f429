"""The exact truth of a solution, from the program that its problem carries in `meta`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from mclabel.arith.program import Program
from mclabel.arith.verify import first_wrong_step


def carries_truth(meta: Mapping[str, str]) -> bool:
    """Whether a problem is of this domain. Others may have a field `program` of their own."""
    return "program" in meta and _program(meta["program"]) is not None


def true_first_error(meta: Mapping[str, str], steps: Sequence[str]) -> int | None:
    """The first wrong step of a solution, from 0; None for none.

    Raises:
        KeyError: the problem is not of this domain.
    """
    if (program := _program(meta["program"])) is None:
        raise KeyError("program")
    return first_wrong_step(program, steps)


@lru_cache(maxsize=64)
def _program(text: str) -> Program | None:
    try:
        return Program.from_json(text)
    except (ValueError, KeyError, TypeError):
        return None
