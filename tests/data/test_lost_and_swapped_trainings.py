"""Every file of trainings of `train` and `rl`, damaged, deleted or another's: all is named.

No training is begun here but those of the fixtures: what resumes asks `check_checkpoint` first, and
a training that has ended asks `check_finished`.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from mclabel import jobs
from mclabel.cli import main
from mclabel.core.config.load import load_config
from mclabel.core.errors import MclabelError, TrainingError
from mclabel.prm.config import TrainConfig
from mclabel.prm.training.checkpoint import check_checkpoint, last_checkpoint
from mclabel.rl.config import RLConfig
from mclabel.run.shards.store import Store
from mclabel.run.trainings import check_finished, mark_checkpoint
from mclabel.run.verify.run import verify
from tests.support.labelled import arith_rows, tiny_model, write_run

pytestmark = pytest.mark.slow


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A training that has ended, another one, and what runs its command again."""

    one: Path
    other: Path
    again: Callable[[], object]
    arguments: list[str]
    """Of the command."""


def reinforced(root: Path) -> Trained:
    """Two steps of the bundled policy, with a checkpoint after each."""
    pytest.importorskip("trl")
    keys = ["problems.split=train", "problems.limit=8", "measured=arith", "measured.limit=2"]
    keys += ["measured.split=validation", "measuring.samples=1", "policy.max_tokens=60"]
    keys += ["steps=2", "save_steps=1", "problems_per_step=2", "group_size=2", "micro_batch=4"]
    keys += ["credit=outcome"]

    def train(name: str, seed: int) -> Path:
        changes = [*keys, f"out={root / name}", f"seed={seed}"]
        jobs.rl(load_config(RLConfig, None, changes))
        return root / name

    arguments = ["rl", "/dev/null", *keys, f"out={root / 'one'}", "seed=1"]
    again = lambda: train("one", 1)  # noqa: E731
    return Trained(one=train("one", 1), other=train("other", 2), again=again, arguments=arguments)


def scorer(root: Path) -> Trained:
    """Five steps of a tiny PRM, with validation and the best weights kept."""
    labels = write_run(root / "labels", arith_rows(24))
    keys = [f"labels=[{labels}]", f"base={tiny_model(root / 'base')}", "max_steps=5"]
    keys += ["save_steps=2", "batch_size=4", "eval_steps=1", "patience=4", "validation=0.3"]

    def train(name: str, seed: int) -> Path:
        changes = [*keys, f"out={root / name}", f"seed={seed}"]
        jobs.train(load_config(TrainConfig, None, changes), lambda *_: None)
        return root / name

    arguments = ["train", "/dev/null", *keys, f"out={root / 'one'}", "seed=1"]
    again = lambda: train("one", 1)  # noqa: E731
    return Trained(one=train("one", 1), other=train("other", 2), again=again, arguments=arguments)


@pytest.fixture(scope="module", params=[scorer, reinforced])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    made: Trained = request.param(tmp_path_factory.mktemp("trained"))
    return made


def damages(
    name: str, whole: bytes, siblings: list[bytes], other: bytes | None
) -> Iterator[tuple[str, bytes | None]]:
    """What is done to a file, and its new content; None deletes it."""
    rng = random.Random(name)
    for place in ("middle", "anywhere"):
        bit = 4 * len(whole) if place == "middle" else rng.randrange(8 * len(whole))
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        yield f"a bit in the {place}", bytes(changed)
    yield "half", whole[: len(whole) // 2]
    yield "empty", b""
    yield "deleted", None
    for content in siblings[:1]:
        yield "a sibling's", content
    if other is not None:
        yield "another training's", other
    if name.endswith((".json", "complete")):
        content = json.loads(whole)
        key = min(content)
        for value in ([1], 10**30, {}, "x", -1):
            yield "other values", json.dumps({**content, key: value}).encode()


def kind_of(name: str) -> str:
    """The folder without its number, and the end of the name."""
    parts = ["checkpoint-N" if part.startswith("checkpoint-") else part for part in name.split("/")]
    return "/".join(parts)


def test_no_damage_is_silent_or_raw(trained: Trained) -> None:
    out, store = trained.one, Store(str(trained.one))
    assert verify(store).is_sound and not verify(store).notes
    names = sorted(str(p.relative_to(out)) for p in out.rglob("*") if p.is_file())
    tally, silent = Counter[tuple[str, str, str]](), []
    for name in names:
        path = out / name
        whole, theirs = path.read_bytes(), trained.other / name
        same = [n for n in names if n != name and Path(n).suffix == path.suffix]
        siblings = [(out / n).read_bytes() for n in same if kind_of(n) == kind_of(name) or "/" in n]
        other = theirs.read_bytes() if theirs.is_file() else None
        for what, content in damages(name, whole, siblings, other):
            if content == whole:
                continue
            path.unlink() if content is None else path.write_bytes(content)
            try:
                found = verify(store)
                said = [finding.name for finding in found.damage] + [n[:80] for n in found.notes]
                step = path.parent
                if step.parent.name == "checkpoints" and (step / "complete").is_file():
                    with pytest.raises(TrainingError) as refused:
                        check_checkpoint(step)
                    assert "\n" not in str(refused.value) and "weights_only" not in str(refused)
                elif name.startswith("model/") and not name.endswith("README.md"):
                    with pytest.raises(MclabelError, match="delete it and run"):
                        check_finished(out)
            finally:
                path.write_bytes(whole)
            is_named = any(name in one for one in said) or (
                "finished.json" in said or any(one.startswith("train.json") for one in said)
            )
            tally[kind_of(name), what, "named" if is_named else "silent"] += 1
            if not is_named:
                silent.append((name, what))
    for (kind, what, outcome), count in sorted(tally.items()):
        print(f"{kind:44} {what:20} {outcome:8} {count}")
    assert silent == []
    assert tally.total() >= 100
    assert verify(store).is_sound


def test_a_damaged_checkpoint_ends_the_command_in_one_line(trained: Trained) -> None:
    """Also one of which somebody has made the mark again, so that only reading it tells."""
    out = trained.one
    last = last_checkpoint(out / "checkpoints")
    assert last is not None
    for name in ("model", "finished.json"):
        (out / name).rename(out.with_name(f"gone-{name}"))
    crafted = {
        "trainer_state.json": json.dumps(
            {**json.loads((last / "trainer_state.json").read_text()), "global_step": 10**9}
        ).encode(),
        "optimizer.pt": b"PK\x03\x04 no archive",
        "scheduler.pt": b"",
        "rng_state.pth": b"\x80\x04",
    }
    lists = last / "lists.pt"
    torch.save({"state": {}, "param_groups": []}, lists)
    crafted_again = {"optimizer.pt": lists.read_bytes()}  # loads, and fits no model
    lists.unlink()
    for remade in (False, True):
        for name, content in [*crafted.items(), *(crafted_again.items() if remade else ())]:
            whole = (last / name).read_bytes()
            (last / name).write_bytes(content)
            if remade:
                mark_checkpoint(last)
            result = CliRunner(env={"COLUMNS": "400"}).invoke(main, trained.arguments)
            (last / name).write_bytes(whole)
            mark_checkpoint(last)
            said = " ".join(result.output.split())
            assert result.exit_code == 2, result.output
            assert f"{last}/" in said and name in said and "Traceback" not in said
            assert "weights_only" not in said and "to resume from checkpoint-" in said
    for name in ("model", "finished.json"):
        out.with_name(f"gone-{name}").rename(out / name)
    assert trained.again() is not None
