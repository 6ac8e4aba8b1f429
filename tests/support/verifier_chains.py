"""Chains of verifiers with the verdicts that a person reads in them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from mclabel.judge.critic.chains import step_verdicts

_FILE = Path(__file__).parents[1] / "judge" / "verifier_chains.jsonl"
PARSERS = {"thinkprm": "step_verdicts", "genprm": "step_verdicts", "rprm": "step_verdicts"}
"""Parsers of formats that have another name."""


@dataclass(frozen=True, kw_only=True)
class GoldenChain:
    """A chain, and what a person reads in it."""

    name: str
    format: str
    num_steps: int
    verdicts: list[bool | None]
    """One a step; None where it says nothing, or both."""
    complete: bool
    """Whether it is a whole verification, up to the first incorrect step at least."""
    truncated: bool
    text: str

    @property
    def parser(self) -> str:
        return PARSERS.get(self.format, self.format)

    def is_read(self) -> bool:
        """Whether it is read as a person reads it."""
        found = step_verdicts(self.text, self.num_steps, self.parser, truncated=self.truncated)
        return (list(found.verdicts), found.fault is None) == (self.verdicts, self.complete)


def golden_chains() -> list[GoldenChain]:
    """All chains of the file."""
    lines = _FILE.read_text(encoding="utf-8").splitlines()
    return [GoldenChain(**json.loads(line)) for line in lines]


def golden_read() -> tuple[int, int]:
    """How many chains are read as a person reads them, and how many there are."""
    chains = golden_chains()
    return sum(one.is_read() for one in chains), len(chains)
