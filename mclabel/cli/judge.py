"""The subcommands `judge`, which collects a judge's opinions on steps, and `combine`, which makes
labels from them.
"""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from mclabel.cli.options import ALLOW, UnitIntervalType, add_settings_arguments
from mclabel.cli.output import (
    EXIT_NOTHING,
    add_json_option,
    console,
    fail,
    fail_if_stopped,
    print_lines,
    print_num_rejected,
    record_json_result,
)
from mclabel.judge.consensus.rules import POSTERIOR, RULES


@click.command()
@click.argument("solutions")
@add_settings_arguments("mclabel.judge.job:JudgeConfig")
@click.option("-o", "--out", required=True, help="Folder or URL for the opinions.")
@click.option(
    "--config",
    type=click.Path(),
    help="YAML file with keys of the job, which KEY=VALUE can override.",
)
@click.option(
    "--answers",
    metavar="RUN",
    help="Reuse the answers of the judge's language model in this earlier run: parse them "
    "again, and sample only missing ones; the same as answers=.",
)
@click.option("--address", help="Address of the Ray cluster to join; the same as ray.address=.")
@click.option(
    "--strict",
    is_flag=True,
    help="Stop at the first row that cannot be judged; the same as strict=true.",
)
@click.option(
    "--accept-changes",
    is_flag=True,
    help="Continue although solutions were changed or removed since the job began: judge changed "
    "solutions again, and leave out the old opinions on changed and removed ones.",
)
@ALLOW
@add_json_option
def judge(
    solutions: str,
    overrides: tuple[str, ...],
    out: str,
    config: str | None,
    answers: str | None,
    address: str | None,
    strict: bool,
    accept_changes: bool,
    allow: tuple[str, ...],
) -> None:
    """Ask a judge for its opinion on the steps of solutions.

    A judge needs neither rollouts nor labels. SOLUTIONS is the folder or URL of a labelling run, or
    a .jsonl, .json, .parquet or .csv file. A row has `problem`, and `solution` (one step per line)
    or `steps` (a list of strings), and optionally `answer` or `reference`. KEY=VALUE chooses the
    judge. judge=symbolic checks the arithmetic of every step exactly. judge=critic asks a language
    model for the first error (judge.policy.model=MODEL). judge=scorer scores the steps with a
    trained PRM (judge.prm=FOLDER).

    Running the same command again resumes an interrupted job. `mclabel combine` combines the
    opinions of judges and labels from rollouts into new labels.
    """
    from mclabel.core.config.load import load_config
    from mclabel.judge.job import JudgeConfig, describe_judge
    from mclabel.judge.job import judge as run_judge
    from mclabel.judge.opinions import count_opinions
    from mclabel.show.progress import job_progress

    option_values: dict[str, object] = {
        "solutions": solutions,
        "out": out,
        "answers": answers,
        "strict": strict or None,
        "ray.address": address,
    }
    option_overrides = [
        f"{key}={json.dumps(value)}" for key, value in option_values.items() if value is not None
    ]
    checked = load_config(JudgeConfig, config, [*option_overrides, *overrides], allow=allow)
    print_lines(describe_judge(checked))
    with job_progress(console, "judge", "solutions") as progress:
        report = run_judge(checked, progress, accept_changes=accept_changes)
    print_num_rejected(report.num_rejected, "rows could not be judged", out)
    counts = None if report.stopped_by is not None else count_opinions(out)
    record_json_result({"out": out, "job": report, "opinions": counts})
    fail_if_stopped(report)
    assert counts is not None  # because the job was not stopped
    print_lines(*counts.lines())
    if counts.no_result_message is not None:
        fail(counts.no_result_message, EXIT_NOTHING)


@click.command()
@click.argument("run")
@click.argument("opinions", nargs=-1, required=True)
@click.option("-o", "--out", required=True, help="Folder or URL of the new run.")
@click.option(
    "--rule",
    type=click.Choice(RULES),
    default=POSTERIOR,
    show_default=True,
    help="How opinions and labels are combined into one label.",
)
@click.option(
    "--least-belief",
    type=UnitIntervalType(),
    help="With posterior: minimum probability of the likeliest first error for a solution "
    "to be kept.  [default: 0.5]",
)
@add_json_option
def combine(
    run: str, opinions: tuple[str, ...], out: str, rule: str, least_belief: float | None
) -> None:
    """Combine a run's labels with judges' opinions, as a new run.

    RUN is the folder or URL of a labelling run. OPINIONS are runs of `mclabel judge` over RUN
    (NAME=RUN sets the judge's name), or folders of `mclabel annotate`, in which each person is a
    source. The new run can be exported, trained on and measured like any other. It holds every
    solution, with the verdict of each source and whether the solution is kept. Training and exports
    use kept solutions only.

    With same_location, a solution is kept if rollouts and judges name the same first error.
    posterior estimates from the run, without true labels, how often each judge errs, and keeps a
    solution if the probability of its label is at least --least-belief. judge takes the labels of
    a single judge, such as a large PRM whose labels train small PRMs.

    Running the same command again resumes an interrupted combination.
    """
    from mclabel.judge.combine import combine as run_combine
    from mclabel.show.progress import StageProgress

    with StageProgress(console, "combine", "blocks") as stage:
        done = run_combine(
            run, opinions, out, rule=rule, least_belief=least_belief, on_progress=stage.update
        )
    record_json_result({"out": out, **asdict(done)})
    print_lines(*done.lines())
    print_lines(f"Show the solutions with each source's opinion: mclabel show {out}")
