"""A run as the source of another run, which copies its solutions and counts its rollouts once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.core.errors import ConfigError
from mclabel.core.records import LabeledSolution, Rollout
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.rollouts import Sampler
from mclabel.run.shards.labels import read_labels, read_rollouts
from mclabel.run.shards.store import Store
from mclabel.run.verify.run import verify

OTHER = "{model: other, cost: 2, engine: scripted}"
BOTH = f"completers=[{{model: policy, cost: 1}}, {OTHER}]"


def job(tmp_path: Path, name: str, *changes: str) -> LabelConfig:
    problems = tmp_path / "problems.jsonl"
    rows = [{"id": f"p{i}", "problem": f"P{i} [answer {i}]", "answer": str(i)} for i in range(9)]
    problems.write_text("\n".join(map(json.dumps, rows)))
    base = [
        *(f"problems.source={problems}", "policy.engine=scripted", "ray.address=none"),
        *("estimator.kind=fixed", "estimator.rollouts=4", "block_problems=2"),
        *("solutions.per_problem=3", f"out={tmp_path / name}"),
    ]
    return load_config(LabelConfig, None, [*base, *changes])


def label(tmp_path: Path, name: str, *changes: str) -> list[LabeledSolution]:
    config = job(tmp_path, name, *changes)
    jobs.label(config, lambda state: None)
    assert verify(Store(config.out)).is_sound
    return sorted(read_labels(Store(config.out)), key=lambda row: row.solution.id)


def rollouts(tmp_path: Path, name: str) -> dict[tuple[str, str, int], Rollout]:
    recorded = list(read_rollouts(Store(str(tmp_path / name))))
    by_place = {(r.completer, r.prefix_id, r.index): r for r in recorded}
    assert len(by_place) == len(recorded)
    return by_place


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labelled")
    label(folder, "source")
    return folder / "source"


@pytest.fixture
def source(labelled: Path, tmp_path: Path) -> str:
    shutil.copytree(labelled, tmp_path / "source")
    return f"solutions.run={tmp_path / 'source'}"


@pytest.fixture
def sampling_completers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the completer's name for each rollout that was sampled, not copied."""
    names: list[str] = []
    roll_out = Sampler.roll_out

    async def noted(self: Sampler, *arguments: Any) -> Any:
        completion, rollout = await roll_out(self, *arguments)
        names.extend([] if completion is None else [self.completer_name])
        return completion, rollout

    monkeypatch.setattr(Sampler, "roll_out", noted)
    return names


def test_a_completer_is_added_to_a_finished_run(
    tmp_path: Path, source: str, sampling_completers: list[str]
) -> None:
    """The labels equal those of one job with both models, and only the new model samples."""
    before = files(tmp_path / "source")
    added = label(tmp_path, "added", source, BOTH)
    assert files(tmp_path / "source") == before
    assert set(sampling_completers) == {"other"}
    added_rollouts = rollouts(tmp_path, "added")
    assert len(sampling_completers) * 2 == len(added_rollouts)
    assert {
        key: rollout for key, rollout in added_rollouts.items() if key[0] == "policy"
    } == rollouts(tmp_path, "source")
    assert added == label(tmp_path, "together", BOTH)
    assert added_rollouts == rollouts(tmp_path, "together")


def test_the_posterior_takes_all_that_is_on_record_and_samples_more(
    tmp_path: Path, source: str, sampling_completers: list[str]
) -> None:
    kind = ("estimator.kind=posterior", "estimator.rollouts=16", "estimator.every=6")
    rows = label(tmp_path, "added", source, BOTH, *kind)
    added_rollouts, source_rollouts = rollouts(tmp_path, "added"), rollouts(tmp_path, "source")
    ways = {key: (rollout.step_ends, rollout.through) for key, rollout in added_rollouts.items()}
    assert all(ends is not None and through is not None for ends, through in ways.values())
    assert {
        key: rollout.text for key, rollout in added_rollouts.items() if key in source_rollouts
    } == {key: rollout.text for key, rollout in source_rollouts.items()}
    assert {"policy", "other"} == set(sampling_completers)
    assert len(sampling_completers) == len(added_rollouts) - len(source_rollouts)
    by_author = [counts for row in rows for counts in row.completers[0].steps[:-1]]
    assert min(counts.num_rollouts for counts in by_author) >= 4
    regraded = tmp_path / "again"
    jobs.regrade(str(tmp_path / "added"), str(regraded))
    again = sorted(read_labels(Store(str(regraded))), key=lambda row: row.solution.id)
    assert [row.first_error for row in again] == [row.first_error for row in rows]


def test_tokens_that_are_taken_over_cost_nothing(tmp_path: Path, source: str) -> None:
    report = jobs.label(job(tmp_path, "again", source), lambda state: None)
    assert report.num_tokens == 0
    assert report.counts["num_rollouts"] == 0
    assert len(rollouts(tmp_path, "again")) == len(rollouts(tmp_path, "source")) > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["policy.temperature=0.3"], r"policy.temperature: .* there, 0.3 here"),
        (["split.by=blank_line"], "split.by: .line. there, .blank_line. here"),
        (["solutions.path=x.jsonl"], "path and run both give solutions"),
        (["solutions.balance=1"], "run gives existing ones"),
        (["solutions.run={here}"], "is not a run of mclabel label"),
    ],
)
def test_what_cannot_be_a_source_is_refused(
    tmp_path: Path, source: str, changes: list[str], message: str
) -> None:
    overrides = [change.replace("{here}", str(tmp_path)) for change in changes]
    with pytest.raises(ConfigError, match=message):
        label(tmp_path, "refused", source, *overrides)
    assert not (tmp_path / "refused" / "labels").exists()


def test_a_completer_of_the_same_name_is_the_same_model(tmp_path: Path, source: str) -> None:
    label(tmp_path, "added", source, BOTH)
    again = f"solutions.run={tmp_path / 'added'}"
    warmer = BOTH.replace("cost: 2", "cost: 2, temperature: 0.7")
    with pytest.raises(ConfigError, match=r"completers\.other\.temperature: .* there, 0.7 here"):
        label(tmp_path, "refused", again, warmer)
    cheaper = BOTH.replace("cost: 2", "cost: 3")  # the cost is not part of a model's identity
    assert label(tmp_path, "cheaper", again, cheaper)


def test_samples_of_the_policy_are_kept_for_when_it_rolls_out(tmp_path: Path, source: str) -> None:
    label(tmp_path, "other", f"completers=[{OTHER}]")
    assert label(tmp_path, "later", f"solutions.run={tmp_path / 'other'}") == label(
        tmp_path, "alone", source
    )
