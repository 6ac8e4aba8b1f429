"""What a training of a PRM or an ORM did: the record that is saved beside the model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TrainReport:
    """What a training run did."""

    model: str
    """Folder of the finished PRM."""
    num_solutions: int
    """Solutions that it was trained on."""
    num_validation: int
    num_unlabeled: int
    num_leaked: int
    """Solutions left out because their problems are in an evaluation set."""
    num_too_long: int
    num_cut: int
    num_refused: int
    first_refused: str | None
    validation: dict[str, float | None]
    """Figures at the end."""
