"""What a training of a PRM or an ORM did: the record that is saved beside the model."""

from __future__ import annotations

from dataclasses import dataclass

from mclabel.core.settings import Count


@dataclass(frozen=True, kw_only=True)
class TrainReport:
    """Result of a training run."""

    model: str
    """Folder of the finished PRM."""
    num_solutions: Count
    """Number of solutions in the training set."""
    num_validation: Count
    num_unlabeled: Count
    num_leaked: Count
    """Number of solutions left out because their problems are in an evaluation set."""
    num_too_long: Count
    num_cut: Count
    num_refused: Count
    first_refused: str | None
    validation: dict[str, float | None]
    """Validation metrics after training, by name."""
