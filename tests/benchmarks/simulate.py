"""Compare estimators on simulated problems with known step values. No model is needed.

    python -m tests.benchmarks.simulate [ESTIMATOR [KEY=VALUE ...] ...] [--profile PROFILE]
        [--problems N] [--seed N] [--smoke | --quick]

An estimator is a name as in `estimator.kind`, or `module:Class` of your own. Its settings follow
it: `fixed rollouts=32 fixed rollouts=64 posterior`. Other settings have their defaults. Without an
estimator, all built-in estimators with rollouts are compared. Profiles are described in
`simulation/profiles.py`. An estimator that learns over a run first labels other problems of the
profile, without truth. The last line is JSON: figures by estimator, by profile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mclabel.core.config.load import load_config
from mclabel.core.settings import find_settings_class
from mclabel.labeling.config import LabelSettings
from mclabel.labeling.estimators import ESTIMATORS, EstimatorSettings, RolloutSettings
from tests.benchmarks.figures import finish
from tests.benchmarks.simulation.measure import Measurement, SimulatedRun, measure
from tests.benchmarks.simulation.profiles import PROFILES, Profile, simulated_cases
from tests.benchmarks.sizes import BenchmarkSize, SizedParser

LEARNED_PROBLEMS = 100
"""Number of problems that an estimator with a learner labels before it is measured."""
COMPARED: Mapping[str, Sequence[str]] = {
    "tree": ["searches=0"],
}
"""Settings for the comparison of built-in estimators, if they differ from the defaults."""


def main() -> None:
    parser = SizedParser(__doc__)
    parser.add_argument("estimators", nargs="*", metavar="ESTIMATOR [KEY=VALUE ...]")
    parser.add_argument("--profile", choices=PROFILES, action="append")
    parser.add_argument("--problems", type=int)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.read()
    size: BenchmarkSize = args.size
    count = args.problems or size.pick(smoke=2, quick=50, full=300)
    num_learned = size.pick(smoke=2, quick=LEARNED_PROBLEMS, full=LEARNED_PROBLEMS)
    if args.estimators and "=" in args.estimators[0]:
        parser.error(
            f"Write the settings after the name of their estimator: fixed {args.estimators[0]}"
        )
    chosen = _read_estimators(args.estimators) if args.estimators else _built_in()
    finish(
        {
            profile: {
                name: _figures(
                    simulate(profile, settings, count, seed=args.seed, num_learned=num_learned)
                )
                for name, settings in chosen.items()
            }
            for profile in args.profile or PROFILES
        }
    )


def simulate(
    profile: Profile,
    settings: EstimatorSettings,
    count: int,
    *,
    seed: int = 0,
    num_learned: int = LEARNED_PROBLEMS,
) -> Measurement:
    """Measure an estimator on simulated problems of a profile.

    Args:
        profile: how values change after an error.
        settings: settings of the estimator.
        count: number of problems.
        seed: seed of the problems and their rollouts.
        num_learned: number of other problems that a learner learns from first.

    Raises:
        ComponentError: the estimator breaks the rules of the protocol.
    """
    run = SimulatedRun(settings)
    if run.learner is not None:
        others = simulated_cases(profile, num_learned, seed=seed + 1)
        measure(run.begin, others, on_done=run.record)
        run.fit()
    return measure(run.begin, simulated_cases(profile, count, seed=seed), intervals=True)


def _figures(measured: Measurement) -> dict[str, float | None]:
    """Return the figures of one estimator on one profile.

    `accuracy` is the share of solutions whose first error, or its absence, was found. `wrong` is
    the same share among the solutions with an error. `covered` is the share of true values inside
    their 95% interval. `width` is the mean width of the intervals as a multiple of
    Clopper-Pearson's.
    """
    tallies = measured.sources.values()
    labels = sum(tally.labels for tally in tallies)
    fixed = sum(tally.fixed_width for tally in tallies)
    figures = {
        "tokens": measured.tokens_per_solution,
        "accuracy": measured.first_error_accuracy,
        "wrong": measured.first_error_accuracy_wrong,
        "covered": sum(tally.covered for tally in tallies) / labels if labels else None,
        "width": sum(tally.width for tally in tallies) / fixed if fixed else None,
        "problems_per_s": len(measured.table) / max(measured.seconds, 1e-9),
    }
    return {name: None if value is None else round(value, 4) for name, value in figures.items()}


def _read_estimators(words: Sequence[str]) -> dict[str, EstimatorSettings]:
    """Read estimators and their settings from command-line words.

    Returns:
        Settings of each estimator, by its words on the command line.

    Raises:
        ConfigError: an estimator does not exist, or a setting is wrong.
    """
    groups: list[list[str]] = []
    for word in words:
        if "=" in word:
            groups[-1].append(word)
        else:
            groups.append([word])
    return {" ".join(group): _settings(*group) for group in groups}


def _built_in() -> dict[str, EstimatorSettings]:
    return {
        name: _settings(name, *COMPARED.get(name, ()))
        for name in ESTIMATORS
        if issubclass(find_settings_class("estimators", name), RolloutSettings)
    }


def _settings(name: str, *overrides: str) -> EstimatorSettings:
    changes = [f"estimator.kind={name}", *(f"estimator.{override}" for override in overrides)]
    return load_config(LabelSettings, None, changes).estimator


if __name__ == "__main__":
    main()
