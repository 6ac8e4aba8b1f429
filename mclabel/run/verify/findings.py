"""What `verify` finds."""

from __future__ import annotations

from dataclasses import dataclass, field

from mclabel.core.errors import DamagedFile

MAX_LISTED = 1000
TRAINING = "training"
"""What `Verification.holds` says of a training."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A damaged, missing or inconsistent file."""

    name: str
    fault: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.name}: {self.fault}. {self.remedy}"


@dataclass(kw_only=True)
class Verification:
    """The result of reading everything that a run holds."""

    run: str
    holds: str = "labels"
    """What its shards hold: `labels`, `scores` or `opinions`; or `training` of one, which has
    none."""
    num_blocks: int = 0
    num_shards: int = 0
    """Number of shards of what the run holds."""
    num_solutions: int = 0
    num_rollouts: int = 0
    num_priors: int = 0
    num_journals: int = 0
    num_files: int = 0
    """Of a training: files whose digests were checked."""
    num_damaged: int = 0
    """Number of all findings; only the first `MAX_LISTED` are listed."""
    damage: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Observations that are not damage but may surprise."""

    @property
    def is_sound(self) -> bool:
        """Whether no damage was found."""
        return not self.num_damaged

    def add(self, error: DamagedFile) -> None:
        """Take in a damaged file."""
        self.num_damaged += 1
        if len(self.damage) < MAX_LISTED:
            self.damage.append(Finding(name=error.name, fault=error.fault, remedy=error.remedy))
