"""Every file of finished runs of every kind: damaged, deleted, or another's in its place.

`verify` names what is wrong, and readers give what was written or an error, never other data. Left
out are signs of life: a log of progress of another run says nothing of the results.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import mclabel as mc
from mclabel import jobs
from mclabel.cli import main
from mclabel.core.config.load import load_config
from mclabel.core.errors import DamagedFile, ShardError
from mclabel.judge.combine import combine
from mclabel.judge.job import JudgeConfig, ScoreConfig
from mclabel.judge.score import score
from mclabel.labeling.config import LabelConfig
from mclabel.report.viewer.index import Index
from mclabel.run.kinds import find_runs
from mclabel.run.shards.compact import compact
from mclabel.run.shards.labels import read_labels, read_rollouts
from mclabel.run.shards.opinions import opinion_rows
from mclabel.run.shards.store import Store
from mclabel.run.shards.trees import read_trees
from mclabel.run.verify.run import verify
from mclabel.search.config import SearchConfig
from tests.support.labelled import train_tiny_prm
from tests.support.scripted_jobs import scripted_overrides, write_problems

SIGNS_OF_LIFE = "progress.jsonl"


@dataclass(frozen=True, kw_only=True)
class Runs:
    """A finished run, and another one of the same kind."""

    one: Path
    other: Path
    readers: dict[str, Callable[[Store], list[Any]]]
    """What reads it, by name."""


def labelled(folder: Path, seed: int, *, merged: bool) -> Path:
    """Labels of `posterior`, with rejects, priors, and two parts of the plan."""
    folder.mkdir()
    source, out = folder / "problems.jsonl", folder / "run"
    rows = [{"id": f"p{i}", "problem": f"P{i} [answer {i}]", "answer": str(i)} for i in range(12)]
    rows[1]["answer"] = r"\oint_C f"  # no gold that the checker understands
    for count in (8, 12):
        source.write_text("\n".join(map(json.dumps, rows[:count])) + "\nno JSON\n")
        more = ["ray.address=none", "estimator.kind=posterior", f"seed={seed}"]
        config = load_config(LabelConfig, None, scripted_overrides(source, out, *more))
        jobs.label(config, lambda state: None)
    if merged:
        assert compact(Store(str(out)), rows=1000).num_after == 1
    return out


def scored(folder: Path, first: int, prm: str) -> Path:
    """Opinions of a scorer on ten solutions, one of which is too long for the model."""
    folder.mkdir()
    source, out = folder / "solutions.jsonl", folder / "opinions"
    lines = [
        {"problem": f"A boy has {i} apples.", "solution": f"{i} + 1 = {i + 1}\nIt is {i + 1}."}
        for i in range(first, first + 10)
    ]
    lines[3]["solution"] = "1 + 1 = 2\n" * 5000
    source.write_text("".join(json.dumps(line) + "\n" for line in lines) + "no JSON\n")
    more = [f"prm={prm}", f"solutions={source}", f"out={out}", "block_solutions=4"]
    score(load_config(ScoreConfig, None, [*more, "ray.address=none"]))
    return out


def searched(folder: Path, seed: int) -> Path:
    """A search of six problems in blocks of two."""
    folder.mkdir()
    more = ["search=best_of_n", "search.n=2", "scorer=constant", f"seed={seed}", "block_problems=2"]
    changes = [f"problems.source={write_problems(folder, 6)}", f"out={folder / 'run'}", *more]
    config = load_config(
        SearchConfig, None, [*changes, "policy.engine=scripted", "ray.address=none"]
    )
    jobs.search(config, lambda state: None)
    return folder / "run"


def combined(folder: Path, seed: int) -> Path:
    """Labels of `posterior` combined with the opinions of the symbolic judge on them."""
    run, opinions = labelled(folder, seed, merged=False), folder / "opinions"
    changes = [f"solutions={run}", f"out={opinions}", "judge=symbolic", "ray.address=none"]
    jobs.judge(load_config(JudgeConfig, None, changes), lambda state: None)
    combine(str(run), [str(opinions)], str(folder / "combined"), rule="same_location")
    return folder / "combined"


@pytest.fixture(scope="module")
def prm(tmp_path_factory: pytest.TempPathFactory) -> str:
    return train_tiny_prm(tmp_path_factory.mktemp("prm"))


READERS: dict[str, Callable[[Store], list[Any]]] = {
    "labels": lambda store: list(read_labels(store)),
    "rollouts": lambda store: list(read_rollouts(store)),
    "trees": lambda store: list(read_trees(store)),
    "opinions": lambda store: list(opinion_rows(store)),
}
KINDS: dict[str, tuple[Callable[[Path, int], Path], tuple[str, ...]]] = {
    "labels": (partial(labelled, merged=False), ("labels", "rollouts")),
    "merged labels": (partial(labelled, merged=True), ("labels", "rollouts")),
    "search": (searched, ("labels", "trees")),
    "combined": (combined, ("labels", "rollouts")),
}
"""What makes a run of each kind, from a folder and a number, and what reads it."""


@pytest.fixture(scope="module", params=[*KINDS, "opinions"])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    root = tmp_path_factory.mktemp("runs")
    make, names = KINDS.get(request.param, (None, ("opinions",)))
    make = make or partial(scored, prm=request.getfixturevalue("prm"))
    return Runs(
        one=make(root / "one", 1),
        other=make(root / "other", 20),
        readers={name: READERS[name] for name in names},
    )


def kind_of(name: str) -> str:
    """Files of one kind have the same folder, and the same name where they have none."""
    folder, slash, file = name.rpartition("/")
    return folder if slash else file


def damages(runs: Runs) -> Iterator[tuple[str, str, bytes | None]]:
    """What is done to which file, and its new content; None deletes it."""
    rng = random.Random(5)
    names = sorted(str(p.relative_to(runs.one)) for p in runs.one.rglob("*") if p.is_file())
    theirs = sorted(str(p.relative_to(runs.other)) for p in runs.other.rglob("*") if p.is_file())
    for name in names:
        whole = (runs.one / name).read_bytes()
        for _ in range(6):
            changed = bytearray(whole)
            bit = rng.randrange(8 * len(whole))
            changed[bit // 8] ^= 1 << bit % 8
            yield f"bit {bit}", name, bytes(changed)
        for end in (0, rng.randrange(len(whole) - 1), len(whole) - 2):
            yield f"cut at {end}", name, whole[:end]
        yield "deleted", name, None
        siblings = [one for one in names if kind_of(one) == kind_of(name) and one != name]
        if siblings:
            yield "a sibling's", name, (runs.one / siblings[-1]).read_bytes()
        like = [one for one in theirs if kind_of(one) == kind_of(name)]
        if like and name != SIGNS_OF_LIFE:
            yield "another run's", name, (runs.other / like[0]).read_bytes()


def outcome(reader: Callable[[Store], list[Any]], run: Path) -> list[Any] | None:
    """What a reader gives; None where it refuses. Any other error fails the test."""
    try:
        return reader(Store(str(run)))
    except ShardError:
        return None


@pytest.mark.slow
def test_nothing_is_silent_and_nothing_is_read_wrongly(runs: Runs) -> None:
    store = Store(str(runs.one))
    before = {name: reader(store) for name, reader in runs.readers.items()}
    found = verify(store)
    assert found.is_sound and not found.notes, (found.damage, found.notes)
    silent, wrong, count = [], [], 0
    for what, name, content in damages(runs):
        path, count = runs.one / name, count + 1
        whole = path.read_bytes()
        if content == whole:
            continue
        path.unlink() if content is None else path.write_bytes(content)
        try:
            found = verify(store)
            after = {key: outcome(reader, runs.one) for key, reader in runs.readers.items()}
        except ShardError as error:  # there is no run any more
            assert name in str(error) or "holds no run" in str(error)
            continue
        finally:
            path.write_bytes(whole)
        is_noted = any(note.startswith(name) for note in found.notes)
        if found.is_sound and not is_noted:
            silent.append((name, what))
        for key, rows in after.items():
            if rows is not None and not all(row in before[key] for row in rows):
                wrong.append((name, what, key))
    assert silent + wrong == []
    assert count > 100


def swap(one: Path, other: Path) -> None:
    """Let two files change places."""
    aside = one.with_name("aside")
    for old, new in ((one, aside), (other, one), (aside, other)):
        old.rename(new)


@pytest.mark.slow
def test_a_folder_that_is_gone_and_two_files_that_change_places_are_named(runs: Runs) -> None:
    store, aside = Store(str(runs.one)), runs.one.with_name("aside")
    for folder in [path for path in runs.one.iterdir() if path.is_dir()]:
        first, *others = sorted(path for path in folder.rglob("*") if path.is_file()) or [None]
        if first is None:
            continue
        folder.rename(aside)
        try:
            assert not verify(store).is_sound, folder.name
        except ShardError as error:
            assert "holds no run" in str(error) or folder.name in str(error)
        aside.rename(folder)
        if not others or others[-1].read_bytes() == first.read_bytes():
            continue
        swap(first, others[-1])
        named = {finding.name for finding in verify(store).damage}
        assert named & {str(path.relative_to(runs.one)) for path in (first, others[-1])}
        swap(first, others[-1])
    assert verify(store).is_sound


def _look_at(run: Path) -> None:
    """Read a run as the viewer does."""
    index = Index(find_runs([str(run)]))
    try:
        index.refresh()
    finally:
        index.close()


PYTHON_READERS: tuple[Callable[[Path], Any], ...] = (
    *(mc.load_labels, mc.load_rollouts, lambda run: list(mc.read_labels(run)), _look_at),
)


def _put_folder(shard: Path, sibling: Path) -> None:
    shard.mkdir()
    (shard / sibling.name).write_bytes(sibling.read_bytes())


REPLACED: dict[str, Callable[[Path, Path], Any]] = {
    "deleted": lambda shard, sibling: None,
    "folder": lambda shard, sibling: shard.mkdir(),
    "folder with a shard": _put_folder,
    "pipe": lambda shard, sibling: os.mkfifo(shard),
    "dead link": lambda shard, sibling: shard.symlink_to("nowhere"),
    "link in a circle": lambda shard, sibling: shard.symlink_to(shard.name),
    "empty file": lambda shard, sibling: shard.touch(),
    "link to another file": lambda shard, sibling: shard.symlink_to(sibling),
    "copy of another file": lambda shard, sibling: shard.write_bytes(sibling.read_bytes()),
}
"""What is put in the place of a shard, given another one."""
READING_LABELS = """
verify RUN / labels RUN / show RUN --limit 99 / report RUN -o OUT.html
train EMPTY base=MODEL labels=[RUN] out=OUT max_steps=1 --preflight / compact RUN
train EMPTY base=MODEL labels=[RUN] out=OUT max_steps=1 / annotate RUN -o OUT
export RUN --to trl -o OUT / export RUN --to parquet -o OUT / regrade RUN -o OUT
judge RUN -o OUT judge=symbolic NO_RAY / score PRM RUN -o OUT NO_RAY
select RUN --rule uniform --budget 2 -o OUT.parquet
combine RUN OPINIONS -o OUT --rule same_location
eval labels RUN --truth run:SOUND / eval labels SOUND --truth run:RUN
eval best-of-n EMPTY run=RUN samples=1 out=OUT policy.engine=scripted
label EMPTY policy.engine=scripted problems.source=PROBLEMS solutions.run=RUN out=OUT NO_RAY
"""
READING_OPINIONS = """
verify RUN / show RUN --limit 99 / combine SOUND RUN -o OUT --rule same_location
judge SOUND -o OUT judge=symbolic NO_RAY answers=RUN
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["labels", "merged labels", "samples", "opinions"])
def test_every_verb_refuses_a_finished_run_that_lacks_a_shard(
    tmp_path: Path, prm: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mclabel.serving.access.serve_page", lambda *_: None)
    sound = labelled(tmp_path / "one", 1, merged=False)
    places: dict[str, Any] = {"SOUND": sound, "PRM": prm, "MODEL": Path(prm).parent / "base"}
    places |= {"PROBLEMS": tmp_path / "one" / "problems.jsonl", "OPINIONS": tmp_path / "opinions"}
    places["EMPTY"], places["NO_RAY"] = tmp_path / "empty.yaml", "ray.address=none"
    places["EMPTY"].touch()
    judging = [f"solutions={sound}", f"out={places['OPINIONS']}", "judge=symbolic"]
    judging += ["block_solutions=4", "ray.address=none"]
    jobs.judge(load_config(JudgeConfig, None, judging), lambda state: None)
    run = places["OPINIONS"] if kind == "opinions" else shutil.copytree(sound, tmp_path / "run")
    if kind == "merged labels":
        assert compact(Store(str(run)), rows=1000).num_after == 1
    if kind == "samples":  # of a best-of-n, which lie in a folder of its output
        (tmp_path / "best").mkdir()
        run = run.rename(tmp_path / "best" / "samples")
    folder = {"merged labels": "merged/labels", "opinions": "opinions"}.get(kind, "labels")
    shards = sorted((run / folder).glob("*.parquet"))
    siblings = sorted((sound / "labels").iterdir())
    verbs = READING_OPINIONS if kind == "opinions" else READING_LABELS
    commands = [one.split() for line in verbs.strip().splitlines() for one in line.split(" / ")]

    def filled(word: str, out: str) -> str:
        place = run.parent if kind == "samples" and "best-of-n" in command else run
        for name, what in {**places, "RUN": place, "OUT": tmp_path / out}.items():
            word = re.sub(rf"\b{name}\b", str(what), word)
        return word

    faults: dict[str, str] = {}
    for number, shard in enumerate(shards):
        for what, replace in REPLACED.items():
            whole = shard.read_bytes()
            shard.unlink()
            replace(shard, shards[number - 1] if len(shards) > 1 else siblings[0])
            for place, command in enumerate(commands):
                result = CliRunner().invoke(main, [filled(word, f"out{place}") for word in command])
                said, named = result.output, shard.name if what != "link in a circle" else folder
                if result.exit_code not in (1, 2) or "Traceback" in said or named not in said:
                    faults[f"{what}: {' '.join(command)}"] = f"{result.exit_code}: {said[-300:]}"
            for read in PYTHON_READERS:
                with pytest.raises(ShardError):
                    read(run)
            shutil.rmtree(shard) if shard.is_dir() and not shard.is_symlink() else shard.unlink(
                True
            )
            shard.write_bytes(whole)
    assert faults == {}
    for number, command in enumerate(commands):
        result = CliRunner().invoke(main, [filled(word, f"sound{number}") for word in command])
        assert result.exit_code == 0, (command, result.output)


def test_load_labels_refuses_a_finished_run_that_lacks_a_block(tmp_path: Path) -> None:
    run = labelled(tmp_path / "one", 1, merged=False)
    num_rows = len(mc.load_labels(run))
    shard = sorted((run / "labels").iterdir())[0]
    shard.unlink()
    fault = "missing, though the job has ended with all of its blocks done"
    with pytest.raises(DamagedFile, match=f"labels/{shard.name}: {fault}"):
        mc.load_labels(run)
    assert fault in CliRunner().invoke(main, ["view", str(run)]).output
    found = verify(Store(str(run)))
    assert [(one.name, one.fault) for one in found.damage] == [(f"labels/{shard.name}", fault)]
    (run / "finished.json").unlink()  # so that nothing says that the job has ended
    assert 0 < len(mc.load_labels(run)) < num_rows
