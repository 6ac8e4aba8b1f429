"""The `mclabel` command: verbs only. What they do lives in the library."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.console import Console

from mclabel.errors import DataError, MclabelError

EXIT_BAD_LINES = 1
EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130

# Messages carry text of users and models: nothing in it is markup or an emoji code.
console = Console(emoji=False)
errors = Console(stderr=True, emoji=False)


class _Commands(click.Group):
    """Prints errors that have a message for the user, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MclabelError as error:
            _fail(str(error), EXIT_USER_ERROR)
        except KeyboardInterrupt:
            _fail("interrupted. Run the same command again to resume", EXIT_INTERRUPTED)


def _fail(message: str, code: int) -> NoReturn:
    errors.print(f"mclabel: {message}", style="red", markup=False, highlight=False, soft_wrap=True)
    sys.exit(code)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mclabel")
def main() -> None:
    """Process labels and process reward models, without human labels."""


@main.command()
@click.option("--size", type=click.Choice(["small", "full"]), default="full", show_default=True)
@click.option("--out", default="runs/quickstart", show_default=True, help="Folder for the results.")
def quickstart(size: str, out: str) -> None:
    """Sample, label, train a PRM and measure with the bundled models, on CPU, in minutes."""
    from mclabel.quickstart import run_quickstart

    run_quickstart(size, Path(out), console)  # type: ignore[arg-type]


@main.command()
@click.argument("config")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
def label(config: str, overrides: tuple[str, ...]) -> None:
    """Label the steps of solutions: problems in, Parquet shards out.

    CONFIG is a YAML file; every key can be overridden, e.g. estimator.kind=bisect. Running the
    same command again resumes.
    """
    from mclabel import edge
    from mclabel.config import LabelConfig, load_config
    from mclabel.labeling.progress import job_progress

    checked = load_config(LabelConfig, config, overrides)
    with job_progress(console, "label") as progress:
        report = edge.label(checked, progress)
    console.print(
        f"{report.num_problems} problems, {report.num_solutions} solutions, "
        f"{report.num_rollouts:,} rollouts, {report.num_tokens:,} tokens in this run; "
        f"{report.num_blocks_resumed} of {report.num_blocks} blocks were there before.",
        highlight=False,
    )
    console.print(f"Labels lie in {checked.out}. Look at them: mclabel show {checked.out}")


@main.command()
@click.argument("config")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
def train(config: str, overrides: tuple[str, ...]) -> None:
    """Train a PRM or an ORM on labels.

    CONFIG is a YAML file; every key can be overridden, e.g. target=soft. Running the same command
    again resumes.
    """
    from mclabel import edge
    from mclabel.config import TrainConfig, load_config
    from mclabel.labeling.progress import StageProgress

    checked = load_config(TrainConfig, config, overrides)
    with StageProgress(console, "train", "steps") as progress:
        report = edge.train(
            checked, lambda step, total, loss: progress.update(step, total, detail=loss)
        )
    left_out = (
        f" {report.num_refused} could not be encoded, the first because {report.first_refused}."
        if report.num_refused
        else ""
    )
    console.print(
        f"Trained on {report.num_solutions} solutions, {report.num_validation} kept for "
        f"validation; {report.num_unlabeled} without labels.{left_out}",
        highlight=False,
        markup=False,
    )
    for name, figure in report.validation.items():
        value = "-" if figure is None else f"{figure:.4g}"
        console.print(f"  validation {name.replace('_', ' ')}: {value}", highlight=False)
    console.print(f"Model: {report.model}. Score with it: mclabel score {checked.out} FILE")


@main.command()
@click.argument("prm")
@click.argument("solutions")
@click.option("-o", "--out", help="JSONL file to write; standard output by default.")
@click.option("--device", default="cpu", show_default=True)
def score(prm: str, solutions: str, out: str | None, device: str) -> None:
    """Score the steps of solutions with a trained PRM.

    SOLUTIONS is a .jsonl, .json, .parquet or .csv file; a row has `problem`, and `solution` (a step
    a line) or `steps` (list of texts). Every row is written again with `scores`, one a step, and
    their `last`, `min`, `product` and `mean`.
    """
    from mclabel.edge.score import score_file

    for line in score_file(prm, solutions, out, device=device):
        click.echo(line)


@main.command()
@click.option("--problems", default=300, show_default=True, help="Of each profile.")
@click.option(
    "--profile", multiple=True, help="Only these; sharp, decay, recovery, lucky, hopeless."
)
@click.option("--seed", default=0, show_default=True)
def simulate(problems: int, profile: tuple[str, ...], seed: int) -> None:
    """Compare the estimators on simulated problems whose step values are known.

    Five profiles of how values answer to an error; no model is needed.
    """
    from mclabel.simulate.profiles import PROFILES
    from mclabel.simulate.table import simulate, simulation_table

    if unknown := [name for name in profile if name not in PROFILES]:
        _fail(f"--profile {unknown[0]}: must be among {', '.join(PROFILES)}", EXIT_USER_ERROR)
    rows = simulate(problems, seed=seed, profiles=profile or PROFILES)
    console.print(simulation_table(rows))


@main.command()
@click.option("--gold", help="The reference answer.")
@click.option("--answer", help="The answer to grade.")
@click.option("--completion", help="File with a whole completion to grade; - is standard input.")
@click.option("--file", "pairs", help="JSON Lines file of pairs: gold, and answer or completion.")
@click.option("-o", "--out", help="With --file: JSONL file to write; standard output by default.")
def check(
    gold: str | None,
    answer: str | None,
    completion: str | None,
    pairs: str | None,
    out: str | None,
) -> None:
    """Grade answers: right, wrong or unknown, with the reason and the layer that decided.

    Either --gold with --answer or --completion, or --file. Lines of a file that cannot be read are
    reported and left out; the exit code is then 1.
    """
    if pairs is not None:
        if gold is not None or answer is not None or completion is not None:
            raise click.UsageError("--file goes with no --gold, --answer or --completion")
        _check_file(pairs, out)
        return
    if gold is None or (answer is None) == (completion is None) or out is not None:
        raise click.UsageError("give --gold and one of --answer and --completion, or --file")
    from mclabel.answers import grade, grade_completion

    if completion is not None:
        answer, found = grade_completion(_text(completion), gold)
    else:
        assert answer is not None
        found = grade(answer, gold)
    click.echo(json.dumps({"answer": answer, **asdict(found)}, ensure_ascii=False))


def _check_file(pairs: str, out: str | None) -> None:
    from mclabel.edge.check import check_file

    def complain(fault: str) -> None:
        errors.print(fault, style="red", markup=False, highlight=False, soft_wrap=True)

    report = check_file(pairs, out, on_bad_line=complain)
    rate = report.num_pairs / report.seconds if report.seconds else 0.0
    counts = ", ".join(f"{report.verdicts[v]:,} {v}" for v in ("right", "wrong", "unknown"))
    click.echo(
        f"{report.num_pairs:,} pairs: {counts}; {rate:,.0f} pairs/s; "
        f"{report.num_bad_lines:,} bad lines",
        err=out is None,
    )
    if report.num_bad_lines:
        sys.exit(EXIT_BAD_LINES)


def _text(path: str) -> str:
    try:
        raw = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as UTF-8 text ({error})") from error


@main.group(name="eval")
def evaluate() -> None:
    """Measure PRMs and labels."""


@evaluate.command(name="best-of-n")
@click.argument("config")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "md", "json"]),
    default="table",
    help="Of output.",
)
def best_of_n(config: str, overrides: tuple[str, ...], form: str) -> None:
    """Choose among N sampled solutions by every method, and compare.

    CONFIG is a YAML file; every key can be overridden, e.g. samples=64. Writes best_of_n.json and
    the plot under the folder `out`. Running the same command again resumes.
    """
    from mclabel import edge
    from mclabel.config import BestOfNConfig, load_config
    from mclabel.labeling.progress import EvaluationProgress
    from mclabel.report.markdown import to_markdown
    from mclabel.report.terminal import best_of_n_table, group_table, over_optimisation_table

    checked = load_config(BestOfNConfig, config, overrides)
    with EvaluationProgress(console if form == "table" else errors) as progress:
        report = edge.best_of_n(checked, on_state=progress.on_state, on_score=progress.on_score)
    if form == "json":
        click.echo(json.dumps(asdict(report), indent=1))
        return
    for table in (
        best_of_n_table(report.result),
        group_table(report.result),
        over_optimisation_table(report.result, report.num_fooled),
    ):
        if table is not None and form == "md":
            click.echo(to_markdown(table))
        elif table is not None:
            console.print(table)
    if form == "md":
        return
    if report.num_excluded or report.num_unscored:
        console.print(
            f"{report.num_excluded} problems left out (trained on); {report.num_unscored} samples "
            "could not be scored.",
            highlight=False,
        )
    console.print(f"Figures: {checked.out}/best_of_n.json, plot: {checked.out}/best_of_n.png")


@main.command()
@click.argument("shards")
@click.option("--limit", default=5, show_default=True, help="Solutions to print.")
@click.option("--problem", help="Only of the problem with this id.")
@click.option("--wrong", is_flag=True, help="Only solutions with a labelled error.")
def show(shards: str, limit: int, problem: str | None, wrong: bool) -> None:
    """Print solutions with their step values."""
    from mclabel.data.shards import read_labels
    from mclabel.data.store import Store
    from mclabel.evaluation.label_quality import arith_truth, is_arith
    from mclabel.report.terminal import show_solution

    shown = 0
    for row in read_labels(Store(shards)):
        if (problem is not None and row.problem.id != problem) or (
            wrong and row.first_error is None
        ):
            continue
        if shown == limit:
            break
        show_solution(console, row, arith_truth(row) if is_arith([row]) else "")
        shown += 1
    if not shown:
        console.print("No solution matches.")


@main.command()
@click.argument("shards")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def labels(shards: str, as_json: bool) -> None:
    """Print counts, cost and, on arith, quality against truth."""
    from mclabel.data.shards import read_labels
    from mclabel.data.store import Store
    from mclabel.evaluation.label_quality import (
        by_meta,
        is_arith,
        label_cost,
        label_quality,
    )
    from mclabel.report.terminal import counts_table, quality_table

    rows = list(read_labels(Store(shards)))
    cost = label_cost(rows)
    groups = {}
    if is_arith(rows):
        groups = {"all": label_quality(rows)}
        groups |= {k: label_quality(g) for k, g in by_meta(rows, "answer_type").items()}
    if as_json:
        quality = {name: asdict(group) for name, group in groups.items()}
        click.echo(json.dumps({"cost": asdict(cost), "quality": quality}, indent=1))
        return
    console.print(counts_table(rows, cost))
    if groups:
        console.print(quality_table(groups))
