"""Who should roll out: the policy, a stronger model, or both?

    python -m tests.benchmarks.completers [--smoke | --quick]

The bundled policy solves test problems of arith four times each. Policy and strong model roll out
16 times from every prefix, in one labelling job. From these rollouts other estimators are replayed:
each model alone by `fixed` and by `posterior`, both by one posterior, and both beside a model that
writes random text. First errors are compared with exact truth, with 95% intervals over problems.
Nothing is chosen on the test problems: all settings are the defaults. The last line is JSON.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mclabel.core.records import AUTHOR, Outcome
from mclabel.core.stats.bootstrap import resample_weights
from mclabel.labeling.estimators import (
    Completer,
    EstimatorSettings,
    Probe,
    RecordedRollout,
)
from mclabel.labeling.estimators.fixed import FixedEstimator
from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator
from tests.benchmarks import runs
from tests.benchmarks.estimators_common import difference, load_pool, share, shown_equal
from tests.benchmarks.figures import finish
from tests.benchmarks.simulation.measure import Measurement, SimulatedRun, measure
from tests.benchmarks.simulation.replay import Case
from tests.benchmarks.sizes import BenchmarkSize, SizedParser

ROLLOUTS = 16
STRONG, RANDOM = "strong", "random text"
PARTS = 8
"""Parts of the problems between which a run learns."""


def main() -> None:
    size: BenchmarkSize = SizedParser(__doc__).read().size
    problems, rollouts = size.pick(smoke=(2, 4), quick=(60, ROLLOUTS), full=(200, ROLLOUTS))
    keys = [f"problems.limit={problems}", f"completers=[{{model: policy}}, {runs.STRONG}]"]
    keys += [f"estimator.rollouts={rollouts}", f"estimator.root_rollouts={rollouts}"]
    with tempfile.TemporaryDirectory() as folder:
        runs.label(folder, *keys)
        cases = load_pool([folder])
    measured = {name: _measured(cases, *how, rollouts) for name, how in WAYS.items()}
    chosen, fixed = measured["strong, posterior"], measured["strong, fixed"]
    less = difference(chosen, fixed, "hit", "solutions", resample_weights(len(fixed.table), 0))
    finish(
        {
            "ways": {name: _figures(one) for name, one in measured.items()},
            "minus_fixed": less,
            "equal_to_fixed": shown_equal([less]),
        }
    )


FIXED = FixedEstimator.Settings(rollouts=ROLLOUTS)
POSTERIOR = PosteriorEstimator.Settings(min_belief=0.0, rollouts=ROLLOUTS)
WAYS: dict[str, tuple[Sequence[str], EstimatorSettings]] = {
    "policy, fixed": ([AUTHOR], FIXED),
    "policy, posterior": ([AUTHOR], POSTERIOR),
    "strong, fixed": ([STRONG], FIXED),
    "strong, posterior": ([STRONG], POSTERIOR),
    "both, posterior": ([AUTHOR, STRONG], POSTERIOR),
    "both and random text, posterior": ([AUTHOR, STRONG, RANDOM], POSTERIOR),
}
"""Who rolls out, and by which estimator."""


def _measured(
    cases: Sequence[Case],
    names: Sequence[str],
    settings: EstimatorSettings,
    rollouts: int,
) -> Measurement:
    """One run over all cases, which learns as it goes."""
    run = SimulatedRun(settings.changed(rollouts=rollouts))
    parts = []
    for part in np.array_split(np.arange(len(cases)), PARTS):
        asked = [_asked(cases[number], names) for number in part]
        parts.append(measure(run.begin, asked, on_done=run.record))
        run.fit()
    return replace(parts[0], table=np.concatenate([part.table for part in parts]))


def _asked(case: Case, names: Sequence[str]) -> Case:
    """The case with some of its completers, and perhaps one that writes random text."""
    known = {completer.name: number for number, completer in enumerate(case.completers)}

    def draw(probe: Probe, index: int) -> RecordedRollout:
        name = names[probe.completer]
        if name == RANDOM:
            found = case.draw(Probe(probe.prefix, known[STRONG]), index)
            found = replace(found, outcome=Outcome.WRONG, path=(), step_keys=("?",))
        else:
            found = case.draw(Probe(probe.prefix, known[name]), index)
        return replace(found, completer=probe.completer)

    costs = {completer.name: completer.cost for completer in case.completers}
    completers = tuple(Completer(name=name, cost=costs.get(name, 1.0)) for name in names)
    return replace(case, draw=draw, completers=completers)


def _figures(one: Measurement) -> dict[str, Any]:
    """Tokens of rollouts a solution; cost: at each model's price."""
    weights = resample_weights(len(one.table), 0)
    return {
        "first_error": share(one, "hit", "solutions", weights),
        "where_there_is_one": share(one, "hit_wrong", "with_error", weights),
        "sound_called_wrong": round(one.ratio("sound_flagged", "sound"), 4),
        "tokens": round(one.tokens_per_solution, 1),
        "cost": round(one.cost_per_solution, 1),
    }


if __name__ == "__main__":
    main()
