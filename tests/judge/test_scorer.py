"""The judge `scorer`: what it cannot score, its resources, and problems that are held out."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from safetensors.torch import load_file, save_file

from mclabel.core.errors import DataError
from mclabel.judge.base import make_judge
from mclabel.judge.score import ScorerJudge
from mclabel.run.shards.labels import read_committed_block_ids
from mclabel.run.shards.store import Store
from tests.support.commands import run_verb
from tests.support.labelled import arith_rows, train_tiny_prm, write_run

GOOD = {"problem": "A boy has 1 apple.", "solution": "1 + 1 = 2\nThe answer is 2."}
LONG = {"problem": "A boy.", "steps": ["1 + 1 = 2 " * 2000]}


@pytest.fixture(scope="module")
def prm(tmp_path_factory: pytest.TempPathFactory) -> str:
    return train_tiny_prm(tmp_path_factory.mktemp("prm"))


def judge_rows(
    folder: Path, prm: str, *rows: dict[str, object], more: tuple[str, ...] = (), code: int = 0
) -> str:
    """Judge rows with a PRM, and return the output."""
    source = folder / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    scorer = ("judge=scorer", f"judge.prm={prm}", "judge.threshold=0.5")
    command = ["judge", str(source), "-o", str(folder / "out"), *scorer, *more]
    return run_verb(command, code=code).output


def test_what_cannot_be_scored_is_set_aside_with_its_reason(prm: str, tmp_path: Path) -> None:
    assert "1 solutions judged" in judge_rows(tmp_path, prm, GOOD, LONG)
    (reject,) = map(json.loads, (tmp_path / "out" / "rejects.jsonl").read_text().splitlines())
    assert (reject["row"], reject["reason"]) == (2, "too_long")
    shutil.rmtree(tmp_path / "out")
    assert "in.jsonl, line 2: " in judge_rows(tmp_path, prm, GOOD, LONG, more=("--strict",), code=2)


def test_a_prm_that_gives_no_numbers_ends_the_job(prm: str, tmp_path: Path) -> None:
    damaged = shutil.copytree(prm, tmp_path / "damaged")
    weights = load_file(damaged / "model" / "model.safetensors")
    save_file({name: tensor * float("nan") for name, tensor in weights.items()},
              damaged / "model" / "model.safetensors", metadata={"format": "pt"})  # fmt: skip
    assert "must be a finite number" in judge_rows(tmp_path, str(damaged), GOOD, code=2)


@pytest.mark.parametrize("num_cpus", [1.0, 3.0])
def test_it_takes_the_cores_that_are_reserved_for_it(
    prm: str, num_cpus: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    load = ScorerJudge.load
    monkeypatch.setattr(
        ScorerJudge, "load", lambda judge, threads: taken.append(threads) or load(judge, threads)
    )

    async def run() -> None:
        judge = make_judge(ScorerJudge.Settings(prm=prm, threshold=0.5), seed=0, num_cpus=num_cpus)
        await judge.start()
        await judge.close()

    asyncio.run(run())
    assert taken == [num_cpus]


def test_held_out_labels_of_judged_or_learned_problems_are_refused(tmp_path: Path) -> None:
    """The threshold is chosen on problems that are neither judged nor used to train the PRM."""
    rows = arith_rows(6)
    held_out = write_run(tmp_path / "held", rows)
    settings = SimpleNamespace(held_out=held_out, prm=str(tmp_path / "prm"))
    first = rows[0].problem
    ScorerJudge.check_input(settings, lambda: ["another problem?"])
    with pytest.raises(DataError, match=r"judge\.held_out=.*: 1 of its 3 problems are also judged"):
        ScorerJudge.check_input(settings, lambda: ["other?", first.text.upper() + " "])
    (tmp_path / "prm").mkdir()
    blocks = [sorted(read_committed_block_ids(Store(held_out)))]
    (tmp_path / "prm" / "train.json").write_text(json.dumps({"blocks": blocks}))
    with pytest.raises(DataError, match="the PRM was trained on labels of this run"):
        ScorerJudge.check_input(settings, lambda: ["another problem?"])
