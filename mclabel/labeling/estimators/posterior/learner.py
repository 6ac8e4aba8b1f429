"""Keeps the priors of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mclabel.core.records import AUTHOR
from mclabel.labeling.estimators.fitting import FittingLearner
from mclabel.labeling.estimators.posterior.fit import Readings, fit_readings
from mclabel.labeling.estimators.posterior.priors import Priors


class PriorLearner(FittingLearner[Priors, Readings]):
    """Learns the priors of a run; see `FittingLearner`."""

    def read(self, content: str) -> Priors:
        """Read what `Priors.to_json` wrote."""
        return Priors.from_json(content)

    def size(self, evidence: Readings) -> int:
        """Number of the author's solutions."""
        return len(evidence.outcomes[AUTHOR].num_steps)

    def fitted(self, evidence: Mapping[str, Sequence[Readings]]) -> Priors:
        """Fit priors to all that was recorded."""
        return fit_readings(evidence).as_written
