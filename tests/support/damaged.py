"""A run of every kind of file, damage to it, and what every reader makes of the damage."""

from __future__ import annotations

import json
import logging
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.core.errors import ShardError
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.journal import read_entry, rollout_line, solution_line
from mclabel.run.budget import read_spent
from mclabel.run.progress_log import job_starts
from mclabel.run.shards.compact import compact
from mclabel.run.shards.journal import journaled_blocks, read_journal, write_journal
from mclabel.run.shards.labels import committed_blocks, read_labels, read_rollouts
from mclabel.run.shards.manifest import claimed_config, read_priors
from mclabel.run.shards.rejects import set_aside
from mclabel.run.shards.store import Store
from mclabel.run.verify.run import verify
from tests.support.scripted_jobs import scripted_overrides


def write_run(folder: Path, *, merged: bool, num_problems: int = 12) -> Path:
    """A run under way: labels, rollouts, priors, rejects, logs, and a journal of its last block."""
    folder.mkdir(exist_ok=True)
    rows = [
        {"id": f"p{i}", "problem": f"P{i} [answer {i}]", "answer": str(i)}
        for i in range(num_problems)
    ]
    rows[1]["answer"] = r"\oint_C f"  # no gold that the checker understands
    source = folder / "problems.jsonl"
    source.write_text("\n".join(map(json.dumps, rows)) + "\nno JSON\n")
    out = folder / "run"
    more = ["ray.address=none", "estimator.kind=posterior", "solutions.per_problem=2"]
    config = load_config(LabelConfig, None, scripted_overrides(source, out, *more))
    jobs.label(config, lambda state: None)
    store = Store(str(out))
    store.delete("finished.json")
    shard = store.names("labels")[-1]
    block = shard.removeprefix("labels/").removesuffix(".parquet")
    rows_of_it = list(read_labels(store, [block]))
    if merged:
        moved = store.read(shard) or b""
        store.delete(shard)
        assert compact(store, rows=1000).num_after == 1
        store.create(shard, moved)
        store.delete(shard)
    else:
        store.delete(shard)
    for name in store.names("rollouts"):
        if name.startswith(f"rollouts/{block}."):
            store.delete(name)
    rollout = next(read_rollouts(store))
    write_journal(
        store,
        block,
        "killed",
        0,
        [*(solution_line(row.solution) for row in rows_of_it), rollout_line(rollout, (1, 2, 3))],
    )
    return out


@dataclass(frozen=True, kw_only=True)
class Damage:
    """One bit flipped in a file, or its end cut off."""

    name: str
    content: bytes
    what: str


def damages(out: Path, count: int, *, seed: int) -> Iterator[Damage]:
    """Random damage: of all files alike, two in three flips, one in three a truncation."""
    rng = random.Random(seed)
    paths = sorted(path for path in out.rglob("*") if path.is_file() and path.stat().st_size)
    for number in range(count):
        path = paths[number % len(paths)]
        whole = path.read_bytes()
        name = str(path.relative_to(out))
        if rng.random() < 2 / 3:
            bit = rng.randrange(8 * len(whole))
            changed = bytearray(whole)
            changed[bit // 8] ^= 1 << bit % 8
            yield Damage(name=name, content=bytes(changed), what=f"bit {bit}")
        else:
            end = rng.randrange(len(whole))
            yield Damage(name=name, content=whole[:end], what=f"cut at {end}")


@contextmanager
def done_to(out: Path, damage: Damage) -> Iterator[None]:
    """The damage, while the context lasts."""
    path = out / damage.name
    whole = path.read_bytes()
    path.write_bytes(damage.content)
    try:
        yield
    finally:
        path.write_bytes(whole)


@dataclass(frozen=True, kw_only=True)
class Read:
    """What a reader gave: a content, or an error that has a message for the user."""

    content: Any = None
    message: str | None = None


def readers(out: Path) -> dict[str, Callable[[Store], Any]]:
    """Everything that reads a run, by name."""
    (block,) = journaled_blocks(Store(str(out)))
    priors = [path.stem for path in (out / "priors").iterdir()]
    return {
        "labels": lambda store: list(read_labels(store)),
        "rollouts": lambda store: list(read_rollouts(store)),
        "resume": lambda store: sorted(committed_blocks(store)),
        "rejects": lambda store: list(set_aside(store)),
        "manifest": lambda store: claimed_config(store, "run.json"),
        "spent": read_spent,
        "journal": lambda store: read_journal(store, block, read_entry),
        "priors": lambda store: [read_priors(store, identity) for identity in priors],
        "progress": job_starts,
    }


def read_all(out: Path, log: list[str]) -> dict[str, Read]:
    """What each reader gives; `log` gets warnings."""
    handler = _Into(log)
    logging.getLogger("mclabel").addHandler(handler)
    try:
        return {name: _read(reader, out) for name, reader in readers(out).items()}
    finally:
        logging.getLogger("mclabel").removeHandler(handler)


def _read(reader: Callable[[Store], Any], out: Path) -> Read:
    try:
        return Read(content=reader(Store(str(out))))
    except ShardError as error:  # anything else is a raw traceback, and fails the test
        return Read(message=str(error))


class _Into(logging.Handler):
    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.append(record.getMessage())


@dataclass(kw_only=True)
class Tally:
    """What became of many damages."""

    named: int = 0
    """A reader refused the file, or left it out with a warning."""
    only_verify: int = 0
    """No reader gave anything else than before, and `verify` names the file."""
    harmless: int = 0
    """What the file says is unchanged (white space, a header of gzip)."""
    silent: list[str] | None = None
    """A reader gave other data without a message."""
    unverified: list[str] | None = None
    """A reader complained, and `verify` did not."""


def try_damages(out: Path, count: int, *, seed: int) -> Tally:
    """Do each damage to a run, and look at what all readers say."""
    before = read_all(out, [])
    tally = Tally(silent=[], unverified=[])
    assert tally.silent is not None and tally.unverified is not None
    for damage in damages(out, count, seed=seed):
        with done_to(out, damage):
            log: list[str] = []
            after = read_all(out, log)
            found = verify(Store(str(out)))
        is_named = any(finding.name == damage.name for finding in found.damage)
        is_noted = any(note.startswith(damage.name) for note in found.notes)
        warned = any(damage.name in line for line in log)
        refused = False
        for name, read in after.items():
            if read.message is not None:
                refused = True
                if damage.name not in read.message:
                    tally.silent.append(f"{damage.name}, {damage.what}: {name} names another file")
            elif read != before[name] and not (warned or is_noted):
                tally.silent.append(f"{damage.name}, {damage.what}: {name} gives other data")
        if refused or warned:
            tally.named += 1
            if not is_named:
                tally.unverified.append(f"{damage.name}, {damage.what}")
        elif is_named or is_noted:
            tally.only_verify += 1
        else:
            tally.harmless += 1
            assert not damage.name.endswith(".parquet"), damage.what
    return tally


def copied(out: Path, folder: Path) -> Path:
    """A copy of a run."""
    shutil.copytree(out, folder)
    return folder
