"""Who should roll out: the policy, a stronger model, both, and by which rule are labels best?

    python -m tests.benchmarks.completers [--smoke | --quick] [--run FOLDER]

The bundled policy solves test problems of arith four times each. Policy and strong model roll out
16 times from every prefix, in one labelling job (with `--run` a folder that is kept, and read if
it holds the job already). From these rollouts other estimators are replayed: each model alone by
`fixed` and by `posterior`, both by the rules and by one posterior, and both beside a model that
writes random text. First errors are compared with exact truth, with 95% intervals over problems.
Then four simulated completers of known rates, and what the posterior learns of them. Nothing is
chosen on the test problems: all settings are the defaults. The last line is JSON.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.core.records import AUTHOR, Outcome
from mclabel.core.stats.bootstrap import resample_weights
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.estimators import (
    Completer,
    CompleterRule,
    EstimatorSettings,
    Probe,
    RecordedRollout,
)
from mclabel.labeling.estimators.fixed import FixedEstimator
from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator
from mclabel.labeling.simulation.measure import Measurement, SimulatedRun, measure
from mclabel.labeling.simulation.replay import Case
from tests.benchmarks.estimators_common import difference, load_pool, shown_equal
from tests.benchmarks.simulated_completers import simulated_completers
from tests.benchmarks.sizes import BenchmarkSize, SizedParser

ROLLOUTS = 16
STRONG, RANDOM = "strong", "random text"
PARTS = 8
"""Parts of the problems between which a run learns."""
PATIENT = 1e-5
"""A least gain per token under which rates are learned well."""
KNOWN_RATES = {"a": (0.1, 0.02), "b": (0.4, 0.1), "c": (0.05, 0.3), "d": (0.3, 0.02)}
"""Blindness and luck of simulated completers."""


def main() -> None:
    parser = SizedParser(__doc__)
    parser.add_argument("--run", type=Path, help="keep the labelling job in this folder")
    args = parser.read()
    size: BenchmarkSize = args.size
    console = Console()
    problems = size.pick(smoke=2, quick=60, full=200)
    with tempfile.TemporaryDirectory() as folder:
        out = args.run or Path(folder) / "run"
        jobs.label(job(out, problems), lambda state: None)
        cases = load_pool([str(out)])
    measured = {name: _measured(cases, *how) for name, how in WAYS.items()}
    console.print(_table(measured))
    chosen, fixed = measured["strong, posterior"], measured["strong, fixed"]
    weights = resample_weights(len(fixed.table), 0)
    less = difference(chosen, fixed, "hit", "solutions", weights)
    simulated = size.pick(smoke=20, quick=150, full=600)
    for gain in (POSTERIOR.min_gain_per_token, PATIENT):
        error = _learned_rate_error(simulated, gain, console)
    summary = {
        "rules": {name: _figures(one) for name, one in measured.items()},
        "learned_rate_error": round(error, 4),
        "minus_fixed": less,
        "equal_to_fixed": shown_equal([less]),
    }
    print(json.dumps(summary))


def job(out: Path, problems: int) -> LabelConfig:
    """Both models, everywhere."""
    strong = "{model: arith:strong, max_tokens: 200, temperature: 0.8, engine: {max_live: 1024}}"
    return load_config(
        LabelConfig,
        None,
        [
            *("problems.source=arith", "problems.split=test", f"problems.limit={problems}"),
            *("policy.temperature=0.8", "policy.max_tokens=200", "policy.engine.max_live=1024"),
            *(f"completers=[{{model: policy}}, {strong}]", "ray.address=none", f"out={out}"),
            *("estimator.kind=fixed", f"estimator.rollouts={ROLLOUTS}"),
            f"estimator.root_rollouts={ROLLOUTS}",
        ],
    )


FIXED = FixedEstimator.Settings(rollouts=ROLLOUTS)
POSTERIOR = PosteriorEstimator.Settings(min_belief=0.0, rollouts=ROLLOUTS)
WAYS: dict[str, tuple[Sequence[str], EstimatorSettings, CompleterRule]] = {
    "policy, fixed": ([AUTHOR], FIXED, "strongest"),
    "policy, posterior": ([AUTHOR], POSTERIOR, "strongest"),
    "strong, fixed": ([STRONG], FIXED, "strongest"),
    "strong, posterior": ([STRONG], POSTERIOR, "strongest"),
    "both, any": ([AUTHOR, STRONG], FIXED, "any"),
    "both, all": ([AUTHOR, STRONG], FIXED, "all"),
    "both, posterior": ([AUTHOR, STRONG], POSTERIOR, "strongest"),
    "both and random text, posterior": ([AUTHOR, STRONG, RANDOM], POSTERIOR, "strongest"),
}
"""Who rolls out, by which estimator, and the rule for estimators that judge each alone."""


def _measured(
    cases: Sequence[Case], names: Sequence[str], settings: EstimatorSettings, rule: CompleterRule
) -> Measurement:
    """One run over all cases, which learns as it goes."""
    run = SimulatedRun(settings, rule=rule)
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
    return {
        "first_error_accuracy": round(one.first_error_accuracy, 4),
        "first_error_interval": _interval(one, "hit", "solutions"),
        "where_there_is_one": round(one.first_error_accuracy_wrong, 4),
        "where_interval": _interval(one, "hit_wrong", "with_error"),
        "sound_called_wrong": round(one.ratio("sound_flagged", "sound"), 4),
        "tokens": round(one.tokens_per_solution, 1),
        "cost": round(one.cost_per_solution, 1),
    }


def _interval(one: Measurement, top: str, bottom: str) -> list[float]:
    weights: NDArray[np.float64] = resample_weights(len(one.table), 0)
    drawn = [one.ratio(top, bottom, row) for row in weights]
    return [round(float(end), 4) for end in np.percentile(drawn, [2.5, 97.5])]


def _text(value: float, ends: Sequence[float]) -> str:
    return f"{value:.3f} [{ends[0]:.3f}, {ends[1]:.3f}]"


def _table(measured: dict[str, Measurement]) -> Table:
    table = Table(title="First errors found, by who rolls out [95% interval over problems]")
    headers = ("", "first error", "where there is one", "sound called wrong", "tokens", "cost")
    for number, header in enumerate(headers):
        table.add_column(header, justify="right" if number else "left")
    for name, one in measured.items():
        found = _figures(one)
        table.add_row(
            name,
            _text(found["first_error_accuracy"], found["first_error_interval"]),
            _text(found["where_there_is_one"], found["where_interval"]),
            f"{found['sound_called_wrong']:.3f}",
            f"{found['tokens']:,.0f}",
            f"{found['cost']:,.0f}",
        )
    table.caption = "Tokens of rollouts a solution; cost: at each model's price."
    return table


def _learned_rate_error(problems: int, gain: float, console: Console) -> float:
    """Largest difference between a learned rate and the share among all draws."""
    cases, shares = simulated_completers(KNOWN_RATES, problems=problems, seed=0)
    run = SimulatedRun(
        PosteriorEstimator.Settings(
            min_belief=0.0, rollouts=ROLLOUTS, agreement=False, min_gain_per_token=gain
        )
    )
    spent = 0.0
    for part in np.array_split(np.arange(len(cases)), PARTS):
        one = measure(run.begin, [cases[number] for number in part], on_done=run.record)
        spent += one.num_rollouts / one.table[:, 0].sum() / PARTS
        run.fit()
    assert run.learner is not None
    run.learner.fit()
    title = "Rates that the posterior learns of simulated completers, without truth"
    table = Table(title=f"{title}, min_gain_per_token={gain:g}: {spent:.1f} rollouts a solution")
    for header in ("completer", "blindness", "learned", "luck", "learned"):
        table.add_column(header)
    errors = []
    learned: Any = run.learner.knowledge
    for name, (blindness, luck) in shares.items():
        found = learned.rates[name]
        row = (blindness, found.blindness, luck, found.luck)
        table.add_row(name, *(f"{value:.3f}" for value in row))
        errors += [abs(blindness - found.blindness), abs(luck - found.luck)]
    console.print(table)
    return max(errors)


if __name__ == "__main__":
    main()
