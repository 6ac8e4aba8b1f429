"""The verb `select`, which chooses solutions to label."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from mclabel.cli.options import SEED, LibraryDefaultOption, UnitIntervalType, add_settings_arguments
from mclabel.cli.output import (
    add_json_option,
    console,
    fail_if_stopped,
    print_lines,
    record_json_result,
)


@click.command()
@click.argument("solutions", metavar="POOL")
@add_settings_arguments("mclabel.select.job:SelectConfig")
@click.option("--prm", help="PRM that scores the pool; the scores are saved in OUT.scores.jsonl.")
@click.option("--scores", help="File of the pool's scores that `mclabel score` has written.")
@click.option(
    "--rule",
    required=True,
    metavar="RULE",
    help="uniform, convincing, or module:function of your own.",
)
@click.option(
    "--budget",
    required=True,
    type=click.IntRange(1),
    help="Number of solutions to choose.",
)
@click.option(
    "--uniform-share",
    type=UnitIntervalType(),
    cls=LibraryDefaultOption,
    show_default="0.15",
    help="Share of the budget that is drawn uniformly at random, in [0, 1].",
)
@click.option(
    "--per-problem",
    type=click.IntRange(1),
    help="Maximum number of solutions of one problem that the rule chooses.",
)
@click.option(
    "--seed", type=SEED, cls=LibraryDefaultOption, show_default="0", help="Seed of the random draw."
)
@click.option(
    "--exclude",
    multiple=True,
    metavar="MANIFEST",
    help="Leave out solutions that this earlier selection chose. Can be repeated.",
)
@click.option("-o", "--out", required=True, help="Manifest to write (.parquet).")
@add_json_option
def select(
    solutions: str,
    overrides: tuple[str, ...],
    prm: str | None,
    scores: str | None,
    rule: str,
    budget: int,
    uniform_share: float | None,
    per_problem: int | None,
    seed: int | None,
    exclude: tuple[str, ...],
    out: str,
) -> None:
    """Choose which solutions of a pool to label next.

    POOL is a .jsonl, .json, .parquet or .csv file of solutions, as for `mclabel score`, or the
    folder or URL of a labelling run. Rows may have `outcome` or `final_answer_correct`. The
    manifest lists the chosen solutions, with the exact probability of choosing each.

    `mclabel label CONFIG --select MANIFEST` labels the chosen solutions. Running the same command
    again resumes interrupted scoring, and writes the same manifest.
    """
    from mclabel.core.config.load import load_config
    from mclabel.select.job import SelectConfig
    from mclabel.select.job import select as run_select
    from mclabel.show.progress import job_progress

    option_values: dict[str, object] = {
        "solutions": solutions,
        "out": out,
        "prm": prm,
        "scores": scores,
        "rule": rule,
        "budget": budget,
        "uniform_share": uniform_share,
        "per_problem": per_problem,
        "seed": seed,
        "exclude": list(exclude) or None,
    }
    option_overrides = [
        f"{key}={json.dumps(value)}" for key, value in option_values.items() if value is not None
    ]
    config = load_config(SelectConfig, None, [*option_overrides, *overrides])
    if config.prm is None:
        report = run_select(config)
    else:
        with job_progress(console, "score", "solutions") as progress:
            report = run_select(config, progress)
    record_json_result({"out": out, **asdict(report)})
    if report.stopped is not None:
        fail_if_stopped(report.stopped)
    print_lines(*report.lines(out))
