"""Files of a run that are lost, foreign or edited are named in errors."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from mclabel.core.errors import MclabelError, ShardError
from mclabel.judge.opinions import read_opinion
from mclabel.labeling.estimators.posterior.priors import POOLED, Priors, make_uninformed_priors
from mclabel.run.shards.digest import add_digest, parse_checked_object
from mclabel.run.shards.finished import read_completion_marker
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobReport
from mclabel.run.verify.run import verify
from tests.support.commands import run_verb
from tests.support.scripted_jobs import run_label_job, scripted_overrides, write_problems

OTHERS = ("estimator.kind=bisect", "seed=7", "policy.temperature=0.5")


def label(folder: Path, *more: str, out: str = "run", blocks: int | None = None) -> JobReport:
    source = write_problems(folder, 12)
    changes = scripted_overrides(source, folder / out, "ray.address=none", *more)
    return run_label_job(
        changes,
        choose_blocks=None
        if blocks is None
        else lambda job: [n for n, _ in job.iter_item_counts()][:blocks],
    )


def manifest(run: Path) -> dict[str, object]:
    content = json.loads((run / "run.json").read_text())
    return {name: content[name] for name in ("format", "id", "identity", "config")}


def remove(run: Path) -> None:
    (run / "run.json").unlink()


def replace(run: Path) -> None:
    label(run.parent, *OTHERS, out="other", blocks=0)
    shutil.copy(run.parent / "other" / "run.json", run / "run.json")


@pytest.mark.parametrize(("spoil", "blocks"), [(remove, None), (remove, 0), (replace, None)])
def test_a_run_whose_manifest_is_not_its_own_is_refused_to_others(
    tmp_path: Path, spoil: Callable[[Path], None], blocks: int | None
) -> None:
    label(tmp_path, blocks=blocks)
    run = tmp_path / "run"
    before = {path: path.read_bytes() for path in run.rglob("*.parquet")}
    spoil(run)
    has_manifest = (run / "run.json").exists()
    with pytest.raises(ShardError, match="shards were made with another configuration") as error:
        label(tmp_path, *OTHERS)
    delete = ", delete run.json" if has_manifest else ""
    assert f"restore these values{delete} and run the job again" in str(error.value)
    if blocks is None:
        assert "  seed: 0 there, 7 here" in str(error.value)
        assert re.search(r"  policy.temperature: [\d.]+ there, 0.5 here", str(error.value))
    fault, *_ = [damage for damage in verify(Store(str(run))).damage if damage.name == "run.json"]
    missing = "shards carry" if blocks is None else "the run has a plan"
    words = "of another configuration than" if has_manifest else f"missing, though {missing}"
    assert words in fault.fault
    assert fault.remedy.startswith(
        "Restore run.json from a copy. If there is none, delete run.json if it exists, and"
    )
    assert {path: path.read_bytes() for path in run.rglob("*.parquet")} == before
    assert (run / "run.json").exists() == has_manifest


@pytest.mark.parametrize("spoil", [remove, replace])
def test_the_job_that_began_a_run_writes_its_manifest_again(
    tmp_path: Path, spoil: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    label(tmp_path)
    run = tmp_path / "run"
    before = manifest(run)
    spoil(run)
    run_verb(["verify", str(run)], code=1)
    (run / "run.json").unlink(missing_ok=True)
    assert label(tmp_path).num_blocks_resumed == 3
    assert "run.json was missing. It is written again" in caplog.text
    assert manifest(run) == before
    assert verify(Store(str(run))).is_sound


def test_a_manifest_of_another_format_is_refused(tmp_path: Path) -> None:
    label(tmp_path)
    path = tmp_path / "run" / "run.json"
    content, _ = parse_checked_object(path.read_bytes())
    before = list((tmp_path / "run").rglob("*"))
    for of_then in ({**content, "format": 3}, add_digest({**content, "format": 2})):
        path.write_text(json.dumps(of_then))
        with pytest.raises(ShardError) as error:
            label(tmp_path)
        words = f"format {of_then['format']}; this mclabel reads format 1. Make the output again"
        assert words in str(error.value)
        assert words.startswith(verify(Store(str(path.parent))).damage[0].fault)
    assert list((tmp_path / "run").rglob("*")) == before


FINISHED = {"run": None, "num_blocks": 2, "num_plan_parts": 1, "files": ["a.json"]}
ANSWER = {"prompt": "0a", "number": 0, "max_tokens": 9, "text": "5", "finish_reason": "stop"}
ANSWER |= {"num_tokens": 1}
OPINION = {"is_known": True, "first_error": 1, "sureness": 0.5, "reason": "", "votes": [-1, 1]}
OPINION |= {
    "scores": [0.5],
    "flags": [],
    "answers": [ANSWER],
    "num_tokens": 1,
}


def rewrite_finished(folder: Path, content: Mapping[str, Any]) -> object:
    """Write and read `finished.json`."""
    (folder / "finished.json").write_text(json.dumps(add_digest(content)))
    return read_completion_marker(Store(str(folder)))


def opinion(folder: Path, content: Mapping[str, Any]) -> object:
    """Read a row of opinions."""
    return read_opinion("runs/judged", {"id": "s1", **OPINION, **content})


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (
            rewrite_finished,
            FINISHED | {"num_blocks": -1},
            "finished.json: .*num_blocks=-1: must be at le",
        ),
        (
            rewrite_finished,
            FINISHED | {"num_plan_parts": True},
            "num_plan_parts=True: must be a whole nu",
        ),
        (rewrite_finished, FINISHED | {"num_blocks": 10**30}, "num_blocks=1.*: must be at most"),
        (
            rewrite_finished,
            FINISHED | {"files": "a.json"},
            "files='a.json': must be a list, is a string",
        ),
        (rewrite_finished, FINISHED | {"more": 1}, "more=1: unknown key"),
        (rewrite_finished, {"run": None}, "num_blocks: required"),
        (opinion, {"sureness": 1.5}, "judged: .*'s1'.*sureness=1.5: must be at most 1"),
        (opinion, {"votes": [-2]}, "votes.0=-2: must be at least -1"),
        (opinion, {"scores": [float("inf")]}, "scores.0=inf: must be a finite number"),
        (opinion, {"answers": [ANSWER | {"finish_reason": "x"}]}, "finish_reason='x': must be"),
    ],
)
def test_what_no_record_holds_is_refused(
    tmp_path: Path,
    read: Callable[[Path, Mapping[str, Any]], object],
    content: Mapping[str, Any],
    message: str,
) -> None:
    with pytest.raises(MclabelError, match=message):
        read(tmp_path, content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_solutions": -1}, "num_solutions=-1: must be at least 0"),
        ({"classes": {}}, "must have an entry pooled .*, has none"),
        ({"classes": []}, "classes: must be keys with values, is a list"),
        ({"values": {POOLED: {"root": [[1.0]]}}}, "classes.pooled: must have root, sound"),
        ({"root": [[0.5]]}, r"classes.pooled.root: must be numbers of shape \(8, 14\)"),
        ({"agreement": [[1.0, -1.0]] * 3}, "agreement: each of its numbers must be above 0"),
        ({"agreement": [[1.0, float("nan")]] * 3}, "agreement: each of its numbers must be above"),
    ],
)
def test_priors_that_are_none_are_refused(change: dict[str, Any], message: str) -> None:
    content = json.loads(make_uninformed_priors().to_json())
    if change.keys() <= content["classes"][POOLED].keys():
        content["classes"][POOLED] |= change
    else:
        content |= change
    with pytest.raises(ValueError, match=message):
        Priors.from_json(json.dumps(content))
