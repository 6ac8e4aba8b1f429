"""The `mclabel` command: verbs only. What they do lives in the library."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from rich.console import Console

from mclabel.cli_eval import eval_labels, eval_processbench, processbench_golds
from mclabel.data.exchange import FORMATS, Format
from mclabel.errors import DataError, MclabelError
from mclabel.labeling.stop import Stopped, stop_signals

if TYPE_CHECKING:
    from mclabel.config import LabelConfig

EXIT_BAD_LINES = 1
EXIT_USER_ERROR = 2
EXIT_BUDGET = 3
EXIT_INTERRUPTED = 130
RESUME = "Run the same command again to resume"

# Messages carry text of users and models: nothing in it is markup or an emoji code.
console = Console(emoji=False)
errors = Console(stderr=True, emoji=False)


class _Commands(click.Group):
    """Prints errors that have a message for the user, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        with stop_signals():
            try:
                return super().invoke(ctx)
            except MclabelError as error:
                _fail(str(error), EXIT_USER_ERROR)
            except Stopped as stopped:
                _fail(f"stopped by {stopped}: what was whole is kept. {RESUME}", stopped.exit_code)
            except KeyboardInterrupt:
                _fail(f"interrupted. {RESUME}", EXIT_INTERRUPTED)


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
@click.option("--address", help="Ray cluster to join, the same as ray.address=.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print what would be done and, from blocks that are done, what it would cost.",
)
@click.option(
    "--pilot",
    is_flag=False,
    flag_value=0,
    type=click.IntRange(0),
    metavar="[PROBLEMS]",
    help="With --dry-run: label some blocks first, for the forecast; the job finds them done.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Stop at the first row or problem that cannot be labelled, the same as strict=true.",
)
def label(
    config: str,
    overrides: tuple[str, ...],
    address: str | None,
    dry_run: bool,
    pilot: int | None,
    strict: bool,
) -> None:
    """Label the steps of solutions: problems in, Parquet shards out.

    CONFIG is a YAML file; every key can be overridden, e.g. estimator.kind=bisect. Running the
    same command again resumes.
    """
    if address is not None:
        overrides = (*overrides, f"ray.address={address}")
    if strict:
        overrides = (*overrides, "strict=true")
    from mclabel import edge
    from mclabel.config import LabelConfig, load_config
    from mclabel.labeling.progress import job_progress

    checked = load_config(LabelConfig, config, overrides)
    if dry_run:
        _dry_run(checked, pilot)
        return
    if pilot is not None:
        raise click.UsageError("--pilot goes with --dry-run")
    with job_progress(console, "label") as progress:
        report = edge.label(checked, progress)
    before = (
        f"; {report.num_blocks_resumed:,} of {report.num_blocks:,} blocks were there before"
        if report.num_blocks_resumed
        else ""
    )
    console.print(
        f"{report.num_problems} problems, {report.num_solutions} solutions, "
        f"{report.num_rollouts:,} rollouts, {report.num_tokens:,} tokens in this run{before}.",
        highlight=False,
        soft_wrap=True,
    )
    _say_rejected(report.num_rejected, checked.out)
    if report.stopped_by is not None:
        tokens = report.num_tokens_left
        about = "" if tokens is None else f", about {tokens:,.0f} tokens,"
        _fail(
            f"stopped by {report.stopped_by}: {report.num_blocks_left:,} of {report.num_blocks:,} "
            f"blocks{about} are left. What is whole is committed, what was under way journaled; "
            "run the same command with a larger budget to go on",
            EXIT_BUDGET,
        )
    console.print(f"Labels lie in {checked.out}. Look at them: mclabel show {checked.out}")


def _dry_run(config: LabelConfig, pilot: int | None) -> None:
    from mclabel import edge
    from mclabel.labeling.progress import job_progress

    lines = edge.plan(config).lines()
    if pilot is not None:
        with job_progress(console, "pilot") as progress:
            report = edge.run_pilot(config, progress, num_problems=pilot or None)
        _say_rejected(report.num_rejected, config.out)
    found = edge.forecast(config) if "://" in config.out or Path(config.out).is_dir() else None
    if found is None:
        lines.append(("forecast", "none yet; add --pilot to label some blocks first"))
    else:
        lines += found.lines()
    for name, planned in lines:
        console.print(f"{name}: {planned}", markup=False, highlight=False, soft_wrap=True)


def _say_rejected(count: int, out: str) -> None:
    if count:
        errors.print(
            f"{count:,} rows or problems have no labels; the reasons: {out}/rejects.jsonl",
            style="yellow",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


@main.group()
def submit() -> None:
    """Run a job on a Ray cluster from outside it."""


@submit.command(name="label")
@click.argument("config")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--address", required=True, help="Job server of the cluster, http://HOST:8265.")
@click.option("--runtime-env", help="YAML file of Ray's runtime environment for the job.")
def submit_label(
    config: str, overrides: tuple[str, ...], address: str, runtime_env: str | None
) -> None:
    """Upload CONFIG, run `mclabel label` on the cluster, follow its log, give its exit code."""
    from mclabel.edge.submit import follow
    from mclabel.edge.submit import submit_label as start

    job = start(config, overrides, address=address, runtime_env=runtime_env)
    console.print(f"Submitted as {job.id}.", highlight=False)
    try:
        code = follow(job, lambda piece: click.echo(piece, nl=False))
    except KeyboardInterrupt:
        stop = f"ray job stop --address {address} {job.id}"
        _fail(f"the job goes on. To stop it: {stop}", EXIT_INTERRUPTED)
    sys.exit(code)


@main.command()
@click.argument("config")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--preflight", "look", is_flag=True, help="Look at the data, train nothing.")
def train(config: str, overrides: tuple[str, ...], look: bool) -> None:
    """Train a PRM or an ORM on labels.

    CONFIG is a YAML file; every key can be overridden, e.g. target=soft. Running the same command
    again resumes. --preflight prints three examples token by token with their labels.
    """
    from mclabel import edge
    from mclabel.config import TrainConfig, load_config
    from mclabel.edge.train import preflight
    from mclabel.labeling.progress import StageProgress

    checked = load_config(TrainConfig, config, overrides)
    if look:
        for line in preflight(checked).lines(examples=True):
            click.echo(line)
        return

    with StageProgress(console, "train", "steps") as progress:
        report = edge.train(
            checked,
            lambda step, total, loss: progress.update(step, total, detail=loss),
            lambda found: click.echo("\n".join(found.lines(examples=False))),
        )
    console.print(
        f"Trained on {report.num_solutions} solutions, {report.num_validation} kept for "
        "validation.",
        highlight=False,
    )
    for name, figure in report.validation.items():
        value = "-" if figure is None else f"{figure:.4g}"
        console.print(f"  validation {name.replace('_', ' ')}: {value}", highlight=False)
    console.print(f"Model: {report.model}. Score with it: mclabel score {checked.out} FILE")


@main.command(name="export")
@click.argument("run")
@click.option("--to", "to", type=click.Choice(FORMATS), required=True)
@click.option("-o", "--out", required=True, help="Folder for data.jsonl and its card.")
@click.option("--push-to-hub", help="Upload the folder to this data set of the Hugging Face Hub.")
def export_labels(run: str, to: Format, out: str, push_to_hub: str | None) -> None:
    """Write a run's labels in the format of TRL, Math-Shepherd, RLHFlow, PRM800K or ProcessBench.

    Says what the format cannot hold, and how many solutions were left out.
    """
    from mclabel import edge

    report = edge.export_run(run, to, out, push_to_hub=push_to_hub)
    for line in report.lines():
        click.echo(line)


@main.command(name="import")
@click.argument("file")
@click.option("--from", "source", type=click.Choice(FORMATS), required=True)
@click.option("-o", "--out", required=True, help="Folder for labels that `train` reads.")
def import_labels(file: str, source: Format, out: str) -> None:
    """Read other people's labelled solutions (JSON Lines, JSON, Parquet) as a run to train on."""
    from mclabel import edge

    report = edge.import_file(file, source, out)
    click.echo(
        f"{report.num_rows} rows, {report.num_solutions} solutions of {report.num_problems} "
        f"problems. Train on them: mclabel train CONFIG labels=[{out}] …"
    )


@main.command()
@click.argument("prm")
@click.argument("solutions")
@click.option("-o", "--out", help="JSONL file to write; standard output by default.")
@click.option("--device", default="cpu", show_default=True)
@click.option("--url", help="Of a server that `mclabel serve` started for this PRM.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["mclabel", "trl", "math-shepherd", "rlhflow", "qwen"]),
    default="mclabel",
    show_default=True,
    help="Of the PRM: ours, or another's (folder or Hugging Face name).",
)
def score(
    prm: str, solutions: str, out: str | None, device: str, url: str | None, form: str
) -> None:
    """Score the steps of solutions with a trained PRM.

    SOLUTIONS is a .jsonl, .json, .parquet or .csv file; a row has `problem`, and `solution` (a step
    a line) or `steps` (list of texts). Every row is written again with `scores`, one a step, and
    their `last`, `min`, `product`, `mean`, `max` and `log_odds` (sum).
    """
    from mclabel.edge.score import score_file

    for line in score_file(prm, solutions, out, device=device, url=url, form=form):
        click.echo(line)


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("prm")
@click.argument("vllm_arguments", nargs=-1, type=click.UNPROCESSED)
def serve(prm: str, vllm_arguments: tuple[str, ...]) -> None:
    """Serve a PRM with vLLM; arguments that follow are those of `vllm serve`, e.g. --port 8001.

    Score through it: mclabel score PRM FILE --url http://localhost:8000
    """
    from mclabel.edge.serve import serve as run

    run(prm, vllm_arguments)


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


for _command in (eval_labels, eval_processbench, processbench_golds):
    evaluate.add_command(_command)


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
@click.argument("run")
@click.option(
    "--rows", default=20_000, show_default=True, type=click.IntRange(1), help="Of a merged shard."
)
def compact(run: str, rows: int) -> None:
    """Merge the small shards of a run into large ones.

    RUN is a folder or URL. Readers see the old shards or the new ones, never both; labelling may go
    on meanwhile.
    """
    from mclabel.data.compact import compact as merge
    from mclabel.data.store import Store
    from mclabel.labeling.progress import StageProgress

    with StageProgress(console, "read", "shards") as stage:
        done = merge(Store(run), rows=rows, on_progress=stage.update)
    console.print(
        f"{run}: {done.num_before:,} shards are now {done.num_after:,} "
        f"({done.num_solutions:,} solutions merged)",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


@main.command()
@click.argument("run")
@click.option("-o", "--out", required=True, help="Folder or URL of the new run.")
@click.option("--golds", help="File of corrected golds: problem_id and answer.")
@click.option(
    "--rule",
    "rules",
    multiple=True,
    metavar="NAME=BOOL",
    help="Rule of the checker, e.g. units_optional=false; several may be given.",
)
def regrade(run: str, out: str, golds: str | None, rules: tuple[str, ...]) -> None:
    """Grade a run's solutions and rollouts again, without an engine.

    RUN is a folder or URL, labelled with keep_rollouts=true. Its estimator judges again on the
    verdicts of the checker that is installed, and the labels are written to a run of their own.
    Running the same command again resumes.
    """
    from mclabel import edge
    from mclabel.labeling.progress import StageProgress

    changes = dict(rule.partition("=")[::2] for rule in rules)
    with StageProgress(console, "grade", "blocks") as stage:
        done = edge.regrade(run, out, golds=golds, rules=changes, on_progress=stage.update)
    for line in done.lines():
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(f"Labels lie in {out}.", highlight=False, markup=False, soft_wrap=True)


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


@main.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("-o", "--out", default="report.html", show_default=True, help="HTML file to write.")
def report(runs: tuple[str, ...], out: str) -> None:
    """Write one HTML page: what was run, label quality, values, best-of-N.

    RUN is an output of `mclabel label`, `eval best-of-n` or `train`, or a folder that holds some,
    such as the quickstart's; several are compared. The page needs no network.
    """
    from mclabel.report.report import write_report

    console.print(f"Report: {write_report(runs, out)}", soft_wrap=True, highlight=False)


@main.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--port", type=click.IntRange(1, 65535), help="By default 8780, or any free one.")
def view(runs: tuple[str, ...], port: int | None) -> None:
    """Look at labels in the browser: solutions, steps, rollouts.

    RUN is an output of `mclabel label`, also of one under way, or a folder that holds some; PRMs
    among them score what is looked at. Only this machine can open it.
    """
    from mclabel.report.view import serve

    def say(address: str) -> None:
        console.print(f"Open {address}\nStop with Ctrl-C.", soft_wrap=True, highlight=False)

    serve(runs, port=port, on_ready=say)
