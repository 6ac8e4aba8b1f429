"""What `verify` finds."""

from __future__ import annotations

from dataclasses import dataclass, field

from mclabel.errors import DamagedFile

MAX_LISTED = 1000


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A file that is not as it should be."""

    name: str
    fault: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.name}: {self.fault}. {self.remedy}"


@dataclass(kw_only=True)
class Verification:
    """The result of reading everything that a run holds."""

    run: str
    num_blocks: int = 0
    num_shards: int = 0
    """Number of labels shards."""
    num_solutions: int = 0
    num_rollouts: int = 0
    num_priors: int = 0
    num_journals: int = 0
    num_without_digest: int = 0
    """Files of an older mclabel, in which damage may go unseen."""
    num_damaged: int = 0
    """Findings in all; those above `MAX_LISTED` are not listed."""
    damage: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What is no damage, and may surprise."""

    @property
    def is_sound(self) -> bool:
        """Whether no damage was found."""
        return not self.num_damaged

    def add(self, error: DamagedFile) -> None:
        """Take in a damaged file."""
        self.num_damaged += 1
        if len(self.damage) < MAX_LISTED:
            self.damage.append(Finding(name=error.name, fault=error.fault, remedy=error.remedy))
