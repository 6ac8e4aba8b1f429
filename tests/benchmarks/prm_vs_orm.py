"""A PRM against an ORM and against scorers that need no training, by number of labelled solutions.

    python -m tests.benchmarks.prm_vs_orm [--smoke | --quick] [--out FOLDER]
        [--plot docs/prm_vs_orm.png]

On arith. Labels are made by the labelling job from train problems; scorers are trained by the
training job on 250 to 16,000 of the labelled solutions, three seeds each with solutions of its own,
and choose among up to 64 samples to each of 2,000 test problems, and of 400 of families that were
kept out of training. The aggregation of step scores is chosen on validation problems. Intervals:
95%, paired bootstrap over problems. `--out` keeps what was labelled and trained, and resumes: an
hour on two cores; `--quick` takes three minutes. The last line is JSON.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from mclabel import pipelines
from mclabel.config import LabelConfig, TrainConfig, bundled_config, load_config
from mclabel.data.shards.labels import commit_block, read_labels
from mclabel.data.shards.store import Store
from mclabel.evaluation.label_quality import arith_truth
from mclabel.prm.scoring.aggregate import AGGREGATIONS, Aggregation
from mclabel.records import LabeledSolution, StepLabel
from mclabel.report.job_progress import StageProgress, job_progress
from tests.benchmarks.prm_vs_orm_figures import TAUGHT_HEAD, Study, draw, table
from tests.benchmarks.prm_vs_orm_scores import Pool, Scorer, load_pool, scores_of
from tests.benchmarks.sizes import BenchmarkSize, SizedParser

PLAIN = ["head=token", "backbone_lr=3.0e-4", "head_lr=1.0e-3", "batch_size=16", "epochs=1"]
TAUGHT = ["head=token", "extra_layers=4", "head_lr=1.0e-3", "batch_size=12", "epochs=2"]
LOW_RATE = ["backbone_lr=3.0e-5", "states=false", "batch_size=16", "epochs=1"]
FROZEN = ["max_steps=600", "batch_size=32"]
VARIANTS: dict[str, list[str]] = {
    "posterior target": ["target=posterior", *FROZEN],
    "pairs": ["pair_weight=1.0", *FROZEN],
    "until the first error": ["to_first_error=true", *FROZEN],
    "with hidden states": ["states=true", "head_lr=3.0e-3", *FROZEN],
    "exact labels": FROZEN,
    "from the policy": ["base=arith:policy", *FROZEN],
    "base at a low rate": LOW_RATE,
    "ORM, base at a low rate": ["target=outcome", *LOW_RATE],
    "plain head": PLAIN,
    "plain head, exact labels": PLAIN,
    TAUGHT_HEAD: TAUGHT,
}
"""One seed each, at the largest size but one: overrides of configs/train/quickstart.yaml. The last
learns from the PRM of the largest size, on all solutions."""


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """How much is labelled and trained."""

    sizes: Mapping[int, int]
    """Seeds, by the number of labelled solutions."""
    train: int
    """Problems that labels are made of; so are the three that follow."""
    validation: int
    test: int
    held_out: int
    num_samples: int
    """Of each of these but the first."""
    label: Sequence[str] = ()
    """Overrides of the labelling jobs."""
    training: Sequence[str] = ()
    """Overrides of every training job."""


SMOKE = Amounts(
    sizes={8: 2, 16: 1},
    train=6,
    validation=2,
    test=4,
    held_out=2,
    num_samples=4,
    label=["ray.address=none"],
    training=["max_steps=2"],
)
QUICK = Amounts(
    sizes={64: 2, 128: 1}, train=60, validation=16, test=40, held_out=16, num_samples=16
)
FULL = Amounts(
    sizes={250: 3, 1000: 3, 4000: 3, 16000: 1},
    train=4000,
    validation=200,
    test=2000,
    held_out=400,
    num_samples=64,
)


def main() -> None:
    parser = SizedParser(__doc__)
    parser.add_argument("--out", type=Path, help="keep runs and scorers here, and resume")
    parser.add_argument(
        "--as-is", action="store_true", help="take the runs under --out as far as they are"
    )
    parser.add_argument("--plot", type=Path, help="write the plot here")
    args = parser.read()
    console = Console(emoji=False, width=150)
    with tempfile.TemporaryDirectory() as scratch:
        out = args.out or Path(scratch)
        plot = Path(scratch) / "plot.png" if args.size is BenchmarkSize.SMOKE else args.plot
        figures = run(out, console, size=args.size, as_is=args.as_is, plot=plot)
    print(json.dumps(figures))


def run(
    out: Path, console: Console, *, size: BenchmarkSize, as_is: bool, plot: Path | None
) -> dict[str, Any]:
    """Label, train, choose, measure."""
    amounts = size.pick(smoke=SMOKE, quick=QUICK, full=FULL)
    sizes, num_samples = amounts.sizes, amounts.num_samples
    label = partial(_there if as_is else _label, more=amounts.label)
    train = label(out / "train", console, "train", amounts.train, 4, seed=5)
    pools = {
        "validation": ("validation", amounts.validation, 3, None),
        "in distribution": ("test", amounts.test, 11, None),
        "families held out": ("test", amounts.held_out, 12, ["gifts", "riddles"]),
    }
    runs = {
        name: label(
            out / name.split()[0], console, split, count, num_samples, seed=seed, families=families
        )
        for name, (split, count, seed, families) in pools.items()
    }
    rows = list(read_labels(Store(train)))
    scorers = list(_train_all(rows, sizes, out, console, amounts.training))
    studied = {name: load_pool(where, console) for name, where in runs.items()}
    how = _choose_aggregation(scorers, studied["validation"], max(sizes))
    found: dict[str, Study] = {}
    for name in ("in distribution", "families held out"):
        found[name] = Study(
            name, studied[name], scores_of(scorers, studied[name], how), num_samples
        )
    main_size = [size for size in sizes if size <= 4000][-1]
    for study in found.values():
        console.print(table(study, main_size))
    if plot is not None:
        draw(found["in distribution"], sorted(sizes), plot)
    return {
        "aggregation": how,
        "labelled_solutions": sorted(sizes),
        **found["in distribution"].summary(main_size, min(sizes)),
        "families_held_out": found["families held out"].summary(main_size, min(sizes)),
    }


def _there(out: Path, *_: object, **__: object) -> str:
    return str(out)


def _label(
    out: Path,
    console: Console,
    split: str,
    count: int,
    per_problem: int,
    *,
    seed: int,
    families: list[str] | None = None,
    more: Sequence[str] = (),
) -> str:
    """A run with labels (train), or of samples alone."""
    changes = [f"out={out}", f"problems.split={split}", f"problems.limit={count}"]
    changes += [f"problems.seed={seed}", f"solutions.per_problem={per_problem}"]
    changes += ["keep_rollouts=false", "ray.max_engines=2", "block_problems=16", *more]
    if families:
        changes.append(f"problems.families={json.dumps(families)}")
    if split == "train":
        changes += [
            "estimator.kind=posterior",
            "estimator.rollouts=64",
            "estimator.min_gain_per_token=0.001",
        ]
    else:
        changes.append("estimator.kind=outcome")
    config = load_config(LabelConfig, bundled_config("label/quickstart.yaml"), changes)
    with job_progress(console, f"label {out.name}") as progress:
        pipelines.label(config, progress)
    return str(out)


def _train_all(
    rows: Sequence[LabeledSolution],
    sizes: Mapping[int, int],
    out: Path,
    console: Console,
    less: Sequence[str],
) -> Iterator[Scorer]:
    """PRM and ORM at every size and seed, and the variants of the PRM.

    `less` holds overrides that make each training shorter.
    """
    for size, num_seeds in sizes.items():
        for seed in range(num_seeds):
            labels = _subset(rows, size, seed, out / f"subset-{size}-{seed}")
            for kind, changes in (("PRM", []), ("ORM", ["target=outcome"])):
                name = f"{kind}-{size}-{seed}"
                path = _train(
                    labels, out / name, [f"seed={seed}", *FROZEN, *changes, *less], console
                )
                yield Scorer(kind=kind, size=size, seed=seed, path=path)
    size = sorted(sizes)[-2]
    exact = _subset([_exact(row) for row in rows], size, 0, out / f"exact-{size}")
    for kind, changes in VARIANTS.items():
        labels = exact if "exact" in kind else str(out / f"subset-{size}-0")
        if kind == TAUGHT_HEAD:
            labels = str(out / "train")
            changes = [*changes, f"teacher={out / f'PRM-{max(sizes)}-0'}"]
        path = _train(labels, out / kind.replace(" ", "-"), [*changes, *less], console)
        yield Scorer(kind=kind, size=size, seed=0, path=path)


def _subset(rows: Sequence[LabeledSolution], size: int, seed: int, out: Path) -> str:
    """A run with `size` of the solutions, whole problems drawn by `seed`."""
    by_problem: dict[str, list[LabeledSolution]] = defaultdict(list)
    for row in rows:
        by_problem[row.problem.id].append(row)
    problems = sorted(by_problem)
    random.Random(seed).shuffle(problems)
    chosen = [row for problem in problems for row in by_problem[problem]][:size]
    commit_block(Store(str(out), create=True), "0" * 16, "subset", chosen, None, {})
    return str(out)


def _exact(row: LabeledSolution) -> LabeledSolution:
    """The solution with the truth of every step in place of its labels."""
    error = arith_truth(row)
    sound = [error is None or index < error for index in range(len(row.steps))]
    steps: list[StepLabel] = [
        replace(step, hard=good, value=float(good), source="given")
        for step, good in zip(row.steps, sound, strict=True)
    ]
    return replace(row, steps=tuple(steps), first_error=error)


def _train(labels: str, out: Path, changes: Sequence[str], console: Console) -> str:
    config = load_config(
        TrainConfig,
        bundled_config("train/quickstart.yaml"),
        [f"labels={json.dumps([labels])}", f"out={out}", "validation=0", *changes],
    )
    with StageProgress(console, f"train {out.name}", "steps") as stage:
        pipelines.train(config, lambda step, total, loss: stage.update(step, total, detail=loss))
    return str(out)


def _choose_aggregation(scorers: Sequence[Scorer], pool: Pool, size: int) -> Aggregation:
    """The aggregation by which the PRM of the largest size chooses best on validation problems."""
    scorer = next(s for s in scorers if s.kind == "PRM" and s.size == size)
    found = {
        how: Study("validation", pool, scores_of([scorer], pool, how), pool.num_samples)
        for how in AGGREGATIONS
    }
    return max(found, key=lambda how: found[how].mean(("PRM", size), pool.num_samples))


if __name__ == "__main__":
    main()
