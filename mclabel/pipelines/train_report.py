"""What a training of a PRM or an ORM did: the record that is saved beside the model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TrainReport:
    """Result of a training run."""

    model: str
    """Folder of the finished PRM."""
    num_solutions: int
    """Number of solutions in the training set."""
    num_validation: int
    num_unlabeled: int
    num_leaked: int
    """Number of solutions left out because their problems are in an evaluation set."""
    num_too_long: int
    num_cut: int
    num_refused: int
    first_refused: str | None
    validation: dict[str, float | None]
    """Validation metrics after training, by name."""
