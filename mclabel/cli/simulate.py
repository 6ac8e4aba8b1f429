"""`mclabel simulate`: estimators on simulated problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from mclabel.cli.options import SEED
from mclabel.cli.output import EXIT_USER_ERROR, console, fail, json_option, result
from mclabel.core.errors import ConfigError

if TYPE_CHECKING:
    from mclabel.labeling.estimators import EstimatorSettings


@click.command()
@click.argument("estimators", nargs=-1, metavar="[ESTIMATOR [KEY=VALUE]...]...")
@click.option(
    "--problems",
    default=300,
    show_default=True,
    type=click.IntRange(1, 2_000),  # about a megabyte each
    help="Number of simulated problems for each profile.",
)
@click.option(
    "--profile",
    multiple=True,
    help=(
        "Simulate only this profile: sharp, decay, recovery, lucky or hopeless. Can be repeated."
    ),
)
@click.option(
    "--seed", default=0, show_default=True, type=SEED, help="Random seed of the simulation."
)
@json_option
def simulate(
    estimators: tuple[str, ...], problems: int, profile: tuple[str, ...], seed: int
) -> None:
    """Compare estimators on simulated problems.

    No model is needed, and all step values are known. Five profiles describe how values change
    after an error. ESTIMATOR is a name as in estimator.kind, or module:Class of your own, and its
    settings follow it:

    mclabel simulate fixed rollouts=32 fixed rollouts=64 posterior

    Other settings have the estimator's defaults. Without any ESTIMATOR, all built-in estimators
    that sample rollouts are compared.
    """
    from mclabel.labeling.simulation import measure
    from mclabel.labeling.simulation.profiles import PROFILES

    if unknown := [name for name in profile if name not in PROFILES]:
        fail(f"--profile {unknown[0]}: must be among {', '.join(PROFILES)}", EXIT_USER_ERROR)
    chosen = _chosen(estimators) if estimators else None
    found = measure.simulate(problems, seed=seed, profiles=profile or PROFILES, estimators=chosen)
    rows = [one.row() for one in found]
    if not result({"num_problems": problems, "seed": seed, "rows": rows}):
        console.print(measure.simulation_table(rows))


def _chosen(words: Sequence[str]) -> Mapping[str, EstimatorSettings]:
    """Read estimators and their settings, by the words that they were given in.

    Raises:
        ConfigError: there is no such estimator, or a setting is wrong.
    """
    groups: list[list[str]] = []
    for word in words:
        if "=" not in word:
            groups.append([word])
        elif groups:
            groups[-1].append(word)
        else:
            raise ConfigError(
                f"{word}: settings follow the name of their estimator, e.g. fixed {word}"
            )
    return {" ".join(group): _settings(*group) for group in groups}


def _settings(name: str, *overrides: str) -> EstimatorSettings:
    from mclabel.core.config.load import load_config
    from mclabel.labeling.config import LabelSettings

    changes = [f"estimator.kind={name}", *(f"estimator.{override}" for override in overrides)]
    return load_config(LabelSettings, None, changes).estimator
