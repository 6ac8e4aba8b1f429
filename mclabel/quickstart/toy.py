"""`mclabel quickstart`: labelling, training and best-of-N on problems whose truth is known.

Trainings run at the same time, each in its own process. A small model trains fastest in one thread,
and most machines have several cores. The processes end with the parent process. An interrupted
training resumes from its last checkpoint when the command is run again.
"""

from __future__ import annotations

import json
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console

from mclabel.core.config.load import find_bundled_config, load_config
from mclabel.core.errors import MclabelError, TrainingError
from mclabel.core.settings import OPERATIONAL, Settings
from mclabel.core.stats.bootstrap import Estimate
from mclabel.evaluate.best_of_n.choosing import MAJORITY
from mclabel.evaluate.best_of_n.config import BestOfNConfig
from mclabel.evaluate.best_of_n.figures import BestOfN
from mclabel.evaluate.best_of_n.job import best_of_n
from mclabel.evaluate.best_of_n.show import make_best_of_n_grid
from mclabel.evaluate.labels.quality import (
    LabelCost,
    LabelQuality,
    compute_label_cost,
    find_exact_first_error,
    measure_quality_by_answer_type,
)
from mclabel.evaluate.labels.show import make_quality_grid
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.job import label
from mclabel.prm.config import TrainConfig
from mclabel.quickstart.picture import draw_labels_picture
from mclabel.report.page.report import write_report
from mclabel.run.outputs import BEST_OF_N, QUICKSTART, RUN, TRAINING, check_output_is_usable
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from mclabel.show.figures import render_rich_table
from mclabel.show.progress import STARTING_STATUS, EvaluationProgress, StageProgress, job_progress
from mclabel.show.solutions import show_solution

Model = Literal["arith:policy", "smollm2:135m"]
Size = Literal["small", "full"]


class QuickstartConfig(Settings):
    """Settings of the quickstart, which makes labels, trains a PRM and chooses answers with it."""

    out: Annotated[str, OPERATIONAL] = "runs/quickstart"
    """Output folder."""
    model: Model = "arith:policy"
    """Model that writes solutions. `smollm2:135m` needs its own packages and up to 15 minutes."""
    size: Size = "full"
    """`small` is for a first look; `full` has five times as many labels."""


LABEL_OVERRIDES: dict[Size, list[str]] = {
    "small": ["problems.limit=40", "estimator=posterior", "block_problems=8"],
    "full": [],
}
"""Overrides of configs/label/quickstart.yaml, by size."""
EVALUATION_OVERRIDES: dict[Size, list[str]] = {
    "small": [
        "problems.limit=200",
        "samples=8",
        "likelihood={policy: 'arith:policy'}",
        "references=[]",
    ],
    "full": ['references=["exact", "strong"]'],
}
"""Overrides of configs/eval/quickstart.yaml, by size. On validation problems, the PRM of a small
quickstart was better than majority vote with each of three seeds, and the interval of the
difference excluded 0."""
_LEARNED_SCORERS: dict[str, list[str]] = {"prm": [], "orm": ["target=outcome"]}
SCORER_OVERRIDES: dict[Size, dict[str, list[str]]] = {
    "small": _LEARNED_SCORERS,
    "full": {**_LEARNED_SCORERS, "exact": ["target=exact"]},
}
"""For each size and each scorer to train, the overrides of configs/train/quickstart.yaml."""
METHOD_NAMES = {
    "random": "random",
    MAJORITY: "majority",
    "likelihood:policy:sum": "policy's likelihood",
    "orm": "ORM",
    "prm:last": "PRM, last step",
    "prm:product": "PRM, product",
    "vote:prm": "vote weighted by PRM",
    "exact:last": "PRM on exact labels",
    "likelihood:strong:sum": "strong's likelihood",
    "pass": "some sample is right",
}
"""Display names of the methods in the printed table, by method; best_of_n.json contains further
methods."""
BASELINES = (MAJORITY, "likelihood:policy:sum")
_QUALITY_FIGURES = (
    "first_error_accuracy",
    "first_error_accuracy_wrong",
    "precision",
    "recall",
    "f1",
    "false_positive_rate",
    "right_through_wrong",
)


def run_quickstart(size: Size, out: Path, console: Console) -> dict[str, Any]:
    """Label arith problems, train PRMs on the labels, choose answers with them, and measure all.

    The same call resumes after an interruption. The function writes the run `labels/`, the scorers
    `prm/` and `orm/` (the full size also `exact/`), `best-of-n/`, pictures, `summary.json` and
    `report.html` below `out`.

    Args:
        size: `small` for a first look, `full` for five times as many labels.
        out: folder for all results.
        console: console for progress, tables and messages.

    Returns:
        The content of summary.json.
    """
    run = out / "labels"
    scorers = SCORER_OVERRIDES[size]
    check_quickstart_outputs(out, run, scorers)
    config = load_config(
        LabelConfig,
        find_bundled_config("label/quickstart.yaml"),
        [f"out={run}", *LABEL_OVERRIDES[size]],
    )
    seconds: dict[str, float] = {}
    console.print(
        f"Sampling {config.solutions.per_problem} solutions to each of {config.problems.limit} "
        f"problems, and rollouts from every step prefix ({config.estimator.summary}).",
        highlight=False,
    )
    with record_duration(seconds, "label"), job_progress(console, "label") as job:
        label(config, job)
    with record_duration(seconds, "measure"), StageProgress(console, "measure", "tables") as stage:
        rows = list(read_labels(Store(str(run))))
        quality = measure_quality_by_answer_type(rows)
        stage.update(1, 1)
        cost = compute_label_cost(rows)
    with record_duration(seconds, "picture"), StageProgress(console, "picture", "files") as stage:
        draw_labels_picture(rows, out / "labels.png")
        stage.update(1, 1)
    console.print()
    wrong_row = next((row for row in rows if row.first_error), rows[0])
    show_solution(console, wrong_row, find_exact_first_error(wrong_row))
    console.print(render_rich_table(make_quality_grid(quality)))
    console.print(
        f"\nTraining {len(scorers)} scorers from the policy, side by side (a PRM and an ORM on "
        f"these labels{', a PRM on exact ones' if 'exact' in scorers else ''}), then choosing "
        "among solutions of other problems.",
        highlight=False,
    )
    evaluation = train_and_choose(
        "quickstart.yaml", scorers, EVALUATION_OVERRIDES[size], out, run, console, seconds
    )
    console.print()
    console.print(
        render_rich_table(make_best_of_n_grid(evaluation, METHOD_NAMES, against=BASELINES))
    )
    summary = _build_summary(size, seconds, quality, cost, evaluation)
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    write_report([str(out)], str(out / "report.html"))
    if size == "small":
        console.print(
            "\nWith five times as many labels, and narrower intervals: "
            "mclabel quickstart --out runs/full",
            highlight=False,
            soft_wrap=True,
        )
    _print_next_commands(console, out, run)
    return summary


def train_and_choose(
    config: str,
    scorers: Mapping[str, list[str]],
    overrides: Sequence[str],
    out: Path,
    run: Path,
    console: Console,
    seconds: dict[str, float],
) -> BestOfN:
    """Train scorers on the labels of a run, and compare their choices on other problems.

    Args:
        config: file of the bundled configurations below `train/` and `eval/`.
        scorers: overrides of the training configuration, by name of the scorer.
        overrides: overrides of the evaluation configuration.
        out: folder of the scorers and of `best-of-n/`.
        run: folder of the labelling run, whose problems are left out of the evaluation.
        console: console for the progress.
        seconds: seconds by stage, to which both stages are added.
    """
    with (
        record_duration(seconds, "train"),
        StageProgress(
            console, "train", "steps", is_forecast=True, opening=STARTING_STATUS
        ) as stage,
    ):
        train_scorers(f"train/{config}", scorers, out, run, stage)
    scorer_folders = {name: str(out / name) for name in scorers}
    evaluation_config = load_config(
        BestOfNConfig,
        find_bundled_config(f"eval/{config}"),
        [
            f"out={out / 'best-of-n'}",
            f"scorers={json.dumps(scorer_folders)}",
            f"exclude={json.dumps([str(run)])}",
            *overrides,
        ],
    )
    with record_duration(seconds, "evaluate"), EvaluationProgress(console) as progress:
        report = best_of_n(
            evaluation_config, on_state=progress.on_state, on_score=progress.on_score
        )
    return report.result


def check_quickstart_outputs(out: Path, run: Path, scorers: Iterable[str]) -> None:
    """Check the output folders of all stages before the first stage begins.

    Raises:
        ShardError: an output folder contains other data.
    """
    check_output_is_usable(str(out), QUICKSTART)
    check_output_is_usable(str(run), RUN)
    for name in scorers:
        check_output_is_usable(str(out / name), TRAINING)
    check_output_is_usable(str(out / "best-of-n"), BEST_OF_N)
    check_output_is_usable(str(out / "best-of-n" / "samples"), RUN)


def train_scorers(
    name: str, scorers: Mapping[str, list[str]], out: Path, run: Path, stage: StageProgress
) -> None:
    """Train scorers at the same time, and show their total progress.

    Args:
        name: name of the bundled configuration.
        scorers: overrides of the configuration, by name of the scorer.
        out: parent of the scorers' folders.
        run: folder of the labelling run.
        stage: progress bar for the optimizer steps.
    """
    configs = {
        scorer: load_config(
            TrainConfig,
            find_bundled_config(name),
            [f"out={out / scorer}", f"labels={json.dumps([str(run)])}", *overrides],
        )
        for scorer, overrides in scorers.items()
    }
    steps_by_scorer = dict.fromkeys(configs, (0, 0))
    first_progress: tuple[float, int] | None = None
    """Time and number of finished steps when all trainings had begun."""

    def on_progress(name: str, step: int, total: int) -> None:
        nonlocal first_progress
        steps_by_scorer[name] = (step, total)
        if not all(total for _, total in steps_by_scorer.values()):
            return
        steps, total_steps = (sum(part) for part in zip(*steps_by_scorer.values(), strict=True))
        now = time.monotonic()
        first_progress = first_progress or (now, steps)
        new_steps = steps - first_progress[1]
        eta_s = (total_steps - steps) * (now - first_progress[0]) / new_steps if new_steps else None
        stage.update(steps, total_steps, eta_s=eta_s)

    train_concurrently(configs, on_progress)


@contextmanager
def record_duration(seconds: dict[str, float], stage: str) -> Iterator[None]:
    """Measure the seconds of a `with` block, and record them as the seconds of a stage."""
    start_s = time.monotonic()
    yield
    seconds[stage] = round(time.monotonic() - start_s, 1)


def _build_summary(
    size: Size,
    seconds: dict[str, float],
    quality: dict[str, LabelQuality],
    cost: LabelCost,
    evaluation: BestOfN,
) -> dict[str, Any]:
    overall = quality["all"]
    return {
        "size": size,
        "seconds": {**seconds, "total": round(sum(seconds.values()), 1)},
        "policy_pass_at_1": overall.pass_at_1.value,
        "policy_pass_at_1_interval": [overall.pass_at_1.low, overall.pass_at_1.high],
        "labels": {
            **_convert_quality_to_json(overall),
            **asdict(cost),
            "by_answer_type": {
                name: _convert_quality_to_json(group_quality)
                for name, group_quality in quality.items()
                if name != "all"
            },
        },
        "best_of_n_problems": evaluation.num_problems,
        "best_of_n": convert_estimates(evaluation.accuracy, lambda estimate: estimate.value),
        "best_of_n_intervals": convert_estimates(
            evaluation.accuracy, lambda estimate: [estimate.low, estimate.high]
        ),
        "best_of_n_minus_majority": compute_accuracy_differences(evaluation, MAJORITY),
        "best_of_n_minus_policy_likelihood": compute_accuracy_differences(
            evaluation, "likelihood:policy:sum"
        ),
        "pair_accuracy": {
            name: estimate.value for name, estimate in evaluation.pair_accuracy.items()
        },
        "pair_accuracy_intervals": {
            name: [estimate.low, estimate.high]
            for name, estimate in evaluation.pair_accuracy.items()
        },
    }


def compute_accuracy_differences(
    evaluation: BestOfN, other: str
) -> dict[str, dict[str, list[float]]]:
    """Return, for each method and N, its accuracy minus that of the method `other`, as a list:
    value, lower and upper bound.
    """
    return {
        method: {
            str(size): [difference.value, difference.low, difference.high]
            for size in by_size
            if (difference := evaluation.difference(method, other, size)) is not None
        }
        for method, by_size in evaluation.accuracy.items()
    }


def convert_estimates(
    table: Mapping[str, Mapping[int, Estimate]], convert: Callable[[Estimate], Any]
) -> dict[str, dict[str, Any]]:
    """Convert the estimates of a table by method and N with the function `convert`."""
    return {
        method: {str(size): convert(estimate) for size, estimate in row.items()}
        for method, row in table.items()
    }


def _convert_quality_to_json(quality: LabelQuality) -> dict[str, Any]:
    estimates = {name: getattr(quality, name) for name in _QUALITY_FIGURES}
    return {
        "problems": quality.num_problems,
        "solutions": quality.num_solutions,
        "left_out": quality.num_left_out,
        **{name: estimate.value for name, estimate in estimates.items()},
        "intervals": {name: [estimate.low, estimate.high] for name, estimate in estimates.items()},
    }


def _print_next_commands(console: Console, out: Path, run: Path) -> None:
    console.print(
        f'\n  labels    {run} (in Python: mclabel.load_labels("{run}"))\n'
        f"  PRM       {out}/prm\n"
        f"  pictures  {out}/labels.png, {out}/best-of-n/best_of_n.png\n"
        f"  figures   {out}/summary.json\n\n"
        "Next:\n"
        f"  mclabel view {out}\n"
        "      look at solutions, steps and rollouts in the browser\n"
        f"  mclabel show {run} --wrong\n"
        "      solutions with their step values\n"
        f"  mclabel labels {run}\n"
        "      counts, cost, quality\n"
        "  mclabel label configs/label/own-data.yaml problems.source=FILE policy.model=MODEL "
        "out=OUT\n"
        "      your own problems and model: docs/own-model.md\n\n"
        f"All of it on one page: {out}/report.html",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


OnTraining = Callable[[str, int, int], None]
"""Callback that receives a training's name, its number of finished optimizer steps, and its total
number of steps."""
_PRELOADED_MODULES = ["mclabel.prm.training.trainer", "transformers.models.llama.modeling_llama"]
"""Modules that every training of a bundled model imports, and that are loaded once for all its
processes."""


def train_concurrently(configs: Mapping[str, TrainConfig], on_progress: OnTraining) -> None:
    """Run trainings at the same time, each in its own process, and wait until all are done.

    Args:
        configs: configurations of the trainings, by name.
        on_progress: called with a training's name, its finished optimizer steps, and all its steps.

    Raises:
        MclabelError: a training failed with this error; the other trainings were terminated.
        TrainingError: a training failed in an unexpected way, or its process was killed.
    """
    context = get_context("forkserver")  # imports the modules only once
    context.set_forkserver_preload(_PRELOADED_MODULES)
    names: dict[Connection, str] = {}
    processes = {}
    try:
        for name, config in configs.items():
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(
                target=_train_in_child_process,
                args=(config, sender),
                name=f"train {name}",
                daemon=True,
            )
            process.start()
            processes[name] = process
            sender.close()
            names[receiver] = name
        while names:
            for connection in wait(list(names)):
                assert isinstance(connection, Connection)
                name = names[connection]
                try:
                    message = connection.recv()
                except EOFError:
                    processes[name].join()
                    raise TrainingError(
                        _describe_process_death(name, processes[name].exitcode)
                    ) from None
                if isinstance(message, MclabelError):
                    raise message
                if message is None:
                    del names[connection]
                else:
                    on_progress(name, *message)
    finally:
        for process in processes.values():
            process.terminate()
            process.join()


def _describe_process_death(name: str, code: int | None) -> str:
    how_ended = (
        f"was terminated by signal {-code}"
        if code is not None and code < 0
        else f"exited with {code}"
    )
    return (
        f"training {name}: its process {how_ended}. Signal 9 can mean that memory ran out; free "
        "some then. Run the same command again to resume"
    )


def _train_in_child_process(config: TrainConfig, connection: Connection) -> None:
    """Run a training in its own process.

    During the training, pairs (finished steps, all steps) are sent over the connection, and at its
    end None or the error.
    """
    from mclabel.prm.job import train

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent terminates this process
    try:
        train(config, lambda step, total, loss: connection.send((step, total)))
        connection.send(None)
    except MclabelError as error:
        connection.send(error)
    except BrokenPipeError:  # the parent is gone, and nobody waits for the training
        os._exit(1)
    except Exception as error:
        traceback.print_exc()
        connection.send(TrainingError(f"{config.out}: {type(error).__name__}: {error}"))
