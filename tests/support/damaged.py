"""Outputs of every kind, the functions that read them, and damage to each of their files."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mclabel as mc
from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.judge.combine import combine
from mclabel.judge.job import JudgeConfig, ScoreConfig
from mclabel.judge.score import score
from mclabel.labeling.journal import make_rollout_line, make_solution_line, parse_entry
from mclabel.prm.config import TrainConfig
from mclabel.prm.training.checkpoint import check_checkpoint
from mclabel.run.budget import read_recorded_spending
from mclabel.run.shards.journal import list_journaled_blocks, read_journal, write_journal
from mclabel.run.shards.labels import read_committed_block_ids, read_labels, read_rollouts
from mclabel.run.shards.manifest import read_manifest_config, read_priors
from mclabel.run.shards.opinions import iter_opinion_rows
from mclabel.run.shards.plan import read_planned_blocks
from mclabel.run.shards.rejects import read_set_aside
from mclabel.run.shards.store import Store
from mclabel.run.shards.trees import read_trees
from mclabel.run.trainings import check_training_finished
from mclabel.search.config import SearchConfig
from tests.support.labelled import arith_rows, tiny_model, train_tiny_prm, write_run
from tests.support.scripted_jobs import run_label_job, scripted_overrides, write_problems


def _labels(folder: Path, seed: int, num_blocks: int | None = None) -> Path:
    """Label by `posterior` with rejects, priors and a two-part plan.

    `num_blocks` limits the labelled blocks in each part; None labels all blocks.
    """
    source, out = folder / "problems.jsonl", folder / "run"
    rows = [{"id": f"p{i}", "problem": f"P{i} [answer {i}]", "answer": str(i)} for i in range(12)]
    rows[1]["answer"] = r"\oint_C f"  # the checker cannot parse this gold
    for count in (8, 12):
        source.write_text("\n".join(map(json.dumps, rows[:count])) + "\nno JSON\n")
        more = ["ray.address=none", "estimator.kind=posterior", f"seed={seed}"]
        first = lambda blocks: [name for name, _ in blocks.iter_item_counts()][:num_blocks]  # noqa: E731
        run_label_job(scripted_overrides(source, out, *more), choose_blocks=first)
    return out


def _make_begun_run(folder: Path, seed: int) -> Path:
    """Make an unfinished run with a journal of a block that is not committed."""
    out = _labels(folder, seed, 1)
    store = Store(str(out))
    lines = [make_solution_line(row.solution) for row in read_labels(store)]
    lines.append(make_rollout_line(next(read_rollouts(store)), (1, 2, 3)))
    planned = read_planned_blocks(store)
    assert planned is not None
    write_journal(
        store, sorted({*planned.names} - read_committed_block_ids(store))[0], "killed", 0, lines
    )
    return out


def _search(folder: Path, seed: int) -> Path:
    changes = ["search=best_of_n", "search.n=2", "scorer=constant", f"seed={seed}"]
    changes += [f"problems.source={write_problems(folder, 6)}", f"out={folder / 'run'}"]
    changes += ["policy.engine=scripted", "ray.address=none", "block_problems=2"]
    jobs.search(load_config(SearchConfig, None, changes), lambda state: None)
    return folder / "run"


def _combine_labels(folder: Path, seed: int) -> Path:
    """Combine labels with the opinions of the symbolic judge."""
    run, opinions = _labels(folder, seed), folder / "opinions"
    changes = [f"solutions={run}", f"out={opinions}", "judge=symbolic", "ray.address=none"]
    jobs.judge(load_config(JudgeConfig, None, changes), lambda state: None)
    combine(str(run), [str(opinions)], str(folder / "combined"), rule="same_location")
    return folder / "combined"


def _opinions(folder: Path, seed: int) -> Path:
    """Make a scorer's opinions on ten solutions, one of which is too long for the model."""
    source, out = folder / "solutions.jsonl", folder / "opinions"
    lines = [
        {"problem": f"A boy has {i} apples.", "solution": f"{i} + 1 = {i + 1}\nIt is {i + 1}."}
        for i in range(seed, seed + 10)
    ]
    lines[3]["solution"] = "1 + 1 = 2\n" * 5000
    source.write_text("".join(json.dumps(line) + "\n" for line in lines) + "no JSON\n")
    more = [f"prm={train_tiny_prm(folder)}", f"solutions={source}", f"out={out}"]
    score(load_config(ScoreConfig, None, [*more, "block_solutions=4", "ray.address=none"]))
    return out


def _train_prm(folder: Path, seed: int) -> Path:
    """Train a tiny PRM for five steps, with validation and the best weights kept."""
    labels, base = write_run(folder / "labels", arith_rows(24)), tiny_model(folder / "base")
    keys = [f"labels=[{labels}]", f"base={base}", "max_steps=5", f"seed={seed}"]
    keys += ["save_steps=2", "batch_size=4", "eval_steps=1", "patience=4", "validation=0.3"]
    jobs.train(load_config(TrainConfig, None, [*keys, f"out={folder / 'prm'}"]), lambda *_: None)
    return folder / "prm"


KINDS: dict[str, tuple[Callable[[Path, int], Path], tuple[str, ...]]] = {
    "labels": (_labels, ("labels", "rollouts", "Python", "priors", "rejects")),
    "begun labels": (
        _make_begun_run,
        ("labels", "rollouts", "priors", "rejects", "committed", "manifest", "spent", "journals"),
    ),
    "search": (_search, ("labels", "trees")),
    "combined": (_combine_labels, ("labels", "rollouts")),
    "opinions": (_opinions, ("opinions",)),
    "training": (_train_prm, ("checkpoints", "model")),
}
"""By kind of output: the function that makes it from a folder and a seed, and the names of its
readers in `READERS`.
"""


def _priors(run: Path) -> list[Any]:
    priors = sorted(path.stem for path in (run / "priors").iterdir())
    contents = [read_priors(Store(str(run)), identity) for identity in priors]
    return [content for content in contents if content is not None]


def _journals(run: Path) -> list[Any]:
    store = Store(str(run))
    return [
        item
        for block in list_journaled_blocks(store)
        for item in read_journal(store, block, parse_entry).items()
    ]


def _read_accepted_files(
    check: Callable[[Path], None], place: Path, files: Path
) -> tuple[bytes, ...]:
    """Return the content of files that pass a check."""
    check(place)
    return tuple(path.read_bytes() for path in sorted(files.rglob("*")) if path.name != "README.md")


READERS: dict[str, Callable[[Path], list[Any]]] = {
    "labels": lambda run: list(read_labels(Store(str(run)))),
    "rollouts": lambda run: list(read_rollouts(Store(str(run)))),
    "Python": lambda run: mc.load_labels(run).to_list(),
    "priors": _priors,
    "rejects": lambda run: list(read_set_aside(Store(str(run)))),
    "committed": lambda run: sorted(read_committed_block_ids(Store(str(run)))),
    "manifest": lambda run: [read_manifest_config(Store(str(run)), "run.json")],
    "spent": lambda run: [read_recorded_spending(Store(str(run)))],
    "journals": _journals,
    "trees": lambda run: list(read_trees(Store(str(run)))),
    "opinions": lambda run: list(iter_opinion_rows(Store(str(run)))),
    "checkpoints": lambda run: [
        _read_accepted_files(check_checkpoint, mark.parent, mark.parent)
        for mark in sorted(run.glob("checkpoints/*/complete"))
    ],
    "model": lambda run: [_read_accepted_files(check_training_finished, run, run / "model")],
}
"""Functions that read one part of an output as a list."""

Content = bytes | str | None
"""New content of a file. None deletes the file, and a text names the kind of entry that replaces
it.
"""


def file_damages(name: str, whole: bytes, *, flips: int = 6) -> Iterator[tuple[str, Content]]:
    """Yield damages of one file: flipped bits, cuts, and other entries in its place.

    Args:
        name: name of the file, which is the random seed of the damaged places.
        whole: content of the file.
        flips: number of damages that flip one bit.

    Yields:
        A description and the new content.
    """
    rng = random.Random(name)
    for bit in [rng.randrange(8 * len(whole)) for _ in range(flips)]:
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        yield f"bit {bit}", bytes(changed)
    for end in (0, rng.randrange(len(whole) - 1), len(whole) - 2):
        yield f"cut at {end}", whole[:end]
    yield "deleted", None
    for kind in ("folder", "pipe", "dead link"):
        yield kind, kind


def damages(run: Path, other_run: Path) -> Iterator[tuple[str, Mapping[str, Content]]]:
    """Yield damages of an output: damaged files, swapped files, and missing folders.

    Args:
        run: folder of the output.
        other_run: folder of another output of the same kind.
    """
    names, theirs = (
        sorted(str(path.relative_to(of)) for path in of.rglob("*") if path.is_file())
        for of in (run, other_run)
    )
    for name in names:
        whole = (run / name).read_bytes()
        for damage, content in file_damages(name, whole):
            yield damage, {name: content}
        siblings = [
            other_name
            for other_name in names
            if _kind_of(other_name) == _kind_of(name) and other_name != name
        ]
        if siblings:
            sibling = (run / siblings[-1]).read_bytes()
            yield "a sibling's", {name: sibling}
            yield "swapped", {name: sibling, siblings[-1]: whole}
        like = [candidate for candidate in theirs if _kind_of(candidate) == _kind_of(name)]
        if like and name != "progress.jsonl":  # a heartbeat file that does not affect results
            yield "another output's", {name: (other_run / like[0]).read_bytes()}
    for folder in [path for path in run.iterdir() if path.is_dir()]:
        below = [name for name in names if name.startswith(f"{folder.name}/")]
        yield "folder gone", dict.fromkeys(below)


def _kind_of(name: str) -> str:
    """Return the kind of a file: its folder, or its name if it is at the top."""
    folder, slash, file = name.rpartition("/")
    return folder if slash else file


def put(path: Path, content: Content) -> None:
    """Replace a file by other content or another kind of entry."""
    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    match content:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "dead link":
            path.symlink_to("nowhere")
        case bytes():
            path.write_bytes(content)


@contextmanager
def damaged(run: Path, changes: Mapping[str, Content]) -> Iterator[None]:
    """Damage files within the context, and restore them afterwards."""
    whole = {name: (run / name).read_bytes() for name in changes}
    for name, content in changes.items():
        put(run / name, content)
    try:
        yield
    finally:
        for name, content in whole.items():
            put(run / name, content)
