"""Regrading a run: equal verdicts give equal labels, and changed verdicts consistent labels.

Also intermediate answers, and completions that contradict the prefix that they continue.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from mclabel import jobs
from mclabel.cli import main
from mclabel.core.config.load import load_config
from mclabel.core.errors import ConfigError, DataError, ShardError
from mclabel.core.records import LabeledSolution, Outcome, Rollout
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.prefixes import corrects_prefix
from mclabel.run.shards.labels import read_labels, read_rollouts
from mclabel.run.shards.store import Store
from tests.support.answering import AnsweringEngine
from tests.support.exactness import check_exact
from tests.support.scripted_jobs import scripted_overrides, write_problems

NUM_PROBLEMS = 12
SETTINGS = {
    "fixed": "{kind: fixed, rollouts: 8, root_rollouts: 2}",
    "bisect": "{kind: bisect, rollouts: 8}",
    "first_error": "{kind: first_error, rollouts: 8}",
    "posterior": "{kind: posterior, rollouts: 8, pilot: 20}",
    "outcome": "{kind: outcome}",
}
CUT = "policy.engine={kind: scripted, truncate_rate: 0.05}"


def label(folder: Path, *overrides: str, count: int = NUM_PROBLEMS) -> Path:
    base = scripted_overrides(
        write_problems(folder, count), folder / "run", "ray.address=none", *overrides
    )
    jobs.label(load_config(LabelConfig, None, base), lambda state: None)
    return folder / "run"


def rows(run: Path) -> list[LabeledSolution]:
    return sorted(read_labels(Store(str(run))), key=lambda row: row.solution.id)


def rollouts(run: Path) -> list[Rollout]:
    return sorted(read_rollouts(Store(str(run))), key=lambda r: (r.prefix_id, r.index))


def write_golds(folder: Path, golds: dict[str, str]) -> str:
    path = folder / "golds.jsonl"
    path.write_text("\n".join(json.dumps({"problem_id": p, "answer": a}) for p, a in golds.items()))
    return str(path)


@pytest.mark.parametrize(
    ("settings", "num_solutions"),
    [
        ([f"estimator={SETTINGS['fixed']}", CUT], 24),
        ([f"estimator={SETTINGS['posterior']}", CUT], 24),
        (
            [
                "estimator={kind: posterior, agreement: false, pilot: 20, rollouts: 16}",
                "solutions.per_problem=6",
            ],
            36,
        ),
    ],
    ids=["fixed", "posterior", "without agreement"],
)
def test_the_same_checker_and_golds_give_the_very_same_labels(
    tmp_path: Path, settings: list[str], num_solutions: int
) -> None:
    run = label(tmp_path, *settings, count=6)
    # Without agreement, rollouts go through the prefixes on record.
    assert num_solutions == 24 or any(rollout.through for rollout in rollouts(run))
    report = jobs.regrade(str(run), str(tmp_path / "again"))
    assert rows(tmp_path / "again") == [replace(row, num_missing=0) for row in rows(run)]
    assert rollouts(tmp_path / "again") == rollouts(run)
    assert (report.num_solutions, report.num_rollouts_missing) == (num_solutions, 0)
    assert report.num_rollouts == len(rollouts(run))
    assert report.num_solutions_changed == report.num_rollouts_changed == 0
    assert report.num_first_errors_changed == report.num_rollouts_unused == 0
    check_exact(tmp_path / "again", 6, num_solutions // 6)


def test_a_least_gain_that_a_budget_leads_is_used_again_as_it_was(tmp_path: Path) -> None:
    more = ["estimator.tokens_per_solution=40", "estimator.pilot=8", "block_problems=4"]
    run = label(tmp_path, "estimator.kind=posterior", *more, count=72)
    assert len({(row.priors, row.min_gain) for row in rows(run)}) >= 3
    jobs.regrade(str(run), str(tmp_path / "again"))
    assert rows(tmp_path / "again") == [replace(row, num_missing=0) for row in rows(run)]


@pytest.mark.parametrize("kind", SETTINGS)
def test_corrected_golds_give_labels_that_rest_on_their_own_rollouts(
    tmp_path: Path, kind: str
) -> None:
    run = label(tmp_path, f"estimator={SETTINGS[kind]}", count=6)
    # The new golds are the policy's wrong answers, so wrong answers become right and vice versa.
    golds = write_golds(tmp_path, {"p3": "301", "p4": "402", "p5": r"\boxed{5}", "zz": "1"})
    report = jobs.regrade(str(run), str(tmp_path / "again"), golds=golds)
    assert (report.num_golds, report.num_golds_unknown) == (4, 1)
    before, after = rows(run), rows(tmp_path / "again")
    check_exact(tmp_path / "again", 6)
    for old, new in zip(before, after, strict=True):
        if old.problem.id not in ("p3", "p4"):
            assert new == replace(old, num_missing=0)
            continue
        gold = {"p3": "301", "p4": "402"}[old.problem.id]
        assert new.problem.answer == gold
        right = new.solution.prediction == gold
        assert new.solution.outcome is (Outcome.RIGHT if right else Outcome.WRONG)
        assert new.steps[-1].hard is right
        mine = [row for row in after if row.problem.id == new.problem.id]
        num_right = sum(row.solution.outcome is Outcome.RIGHT for row in mine)
        assert new.siblings.num_right == new.num_sampled_right == num_right
        assert new.siblings.num_rollouts == 4
    assert report.num_solutions_changed > 0
    missing = {row.problem.id: row.num_missing for row in after}
    assert sum(n or 0 for n in missing.values()) == report.num_rollouts_missing
    if kind in ("fixed", "outcome"):
        assert report.num_rollouts_missing == report.num_rollouts_unused == 0
    assert len(rollouts(tmp_path / "again")) == report.num_rollouts - report.num_rollouts_unused


def test_a_gold_of_another_problem_is_counted_and_not_used(tmp_path: Path) -> None:
    run = label(tmp_path, "estimator={kind: fixed, rollouts: 4}")
    texts = {row.problem.id: row.problem.text for row in rows(run)}
    gold_texts = {"p3": f" {texts['p3']}\n", "p4": texts["p3"], "p5": None}
    lines = [
        {"problem_id": name, "answer": "9", "problem": text} for name, text in gold_texts.items()
    ]
    path = tmp_path / "golds.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    report = jobs.regrade(str(run), str(tmp_path / "again"), golds=str(path))
    assert (report.num_golds, report.num_golds_unknown, report.num_golds_mismatched) == (3, 0, 1)
    assert "1 golds were not used" in " ".join(report.lines())
    answers = {row.problem.id: row.problem.answer for row in rows(tmp_path / "again")}
    assert [answers[name] for name in ("p3", "p4", "p5")] == ["9", "4", "9"]
    path.write_text(json.dumps({"problem_id": "p3", "answer": "9", "problem": 3}))
    with pytest.raises(DataError, match="problem must be a string, but it is of type int"):
        jobs.regrade(str(run), str(tmp_path / "other"), golds=str(path))


def test_an_estimator_that_wants_more_judges_with_what_there_is(tmp_path: Path) -> None:
    run = label(tmp_path, "estimator.kind=first_error", "estimator.rollouts=4")
    # No answer is right any more, so the estimator now searches the formerly right solutions too,
    # which have no rollouts.
    golds = write_golds(tmp_path, {f"p{i}": "-7" for i in range(20)})
    assert jobs.regrade(str(run), str(tmp_path / "again"), golds=golds).num_rollouts_missing > 0
    after = rows(tmp_path / "again")
    assert all(row.solution.outcome is not Outcome.RIGHT for row in after)
    unreached = [row for row in after if row.num_missing]
    for row in unreached:  # steps without rollouts get no label
        for step in row.steps[:-1]:
            if step.counts.num_rollouts == 0 and step.source == "none":
                assert step.hard is None and step.value is None
                assert row.first_error is None  # the unlabelled step may be the first error
    assert any(step.source == "none" for row in unreached for step in row.steps)


def test_a_killed_regrade_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = label(tmp_path, "estimator.kind=bisect", count=20)
    (tmp_path / "whole").mkdir()
    jobs.regrade(str(run), str(tmp_path / "whole"))

    def stop(done: int, total: int) -> None:
        assert total == 5
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jobs.regrade(str(run), str(tmp_path / "again"), on_progress=stop)
    report = jobs.regrade(str(run), str(tmp_path / "again"))
    assert (report.num_blocks_resumed, report.num_solutions) == (2, 48)
    assert rows(tmp_path / "again") == rows(tmp_path / "whole")
    check_exact(tmp_path / "again")


def test_balanced_solutions_keep_what_is_known_of_the_others(tmp_path: Path) -> None:
    run = label(tmp_path, "solutions.balance=1", "solutions.max_samples=8", "estimator.kind=fixed")
    jobs.regrade(str(run), str(tmp_path / "again"))
    assert rows(tmp_path / "again") == [replace(row, num_missing=0) for row in rows(run)]
    chosen = next(row for row in rows(run) if row.solution.outcome is Outcome.WRONG)
    wrong_now = {chosen.problem.id: "no such answer"}
    jobs.regrade(str(run), str(tmp_path / "none"), golds=write_golds(tmp_path, wrong_now))
    for new in rows(tmp_path / "none"):
        old = next(row for row in rows(run) if row.solution.id == new.solution.id)
        lost = new.problem.id == chosen.problem.id  # one of its two kept solutions was right
        assert new.num_sampled_right == old.num_sampled_right - lost
        assert new.num_sampled == old.num_sampled


def test_what_the_new_run_says_of_itself(tmp_path: Path) -> None:
    run = label(tmp_path, "estimator.kind=fixed")
    result = CliRunner().invoke(
        main,
        ["regrade", str(run), "-o", str(tmp_path / "strict"), "checker.units_optional=false"],
    )
    assert result.exit_code == 0, result.output
    assert "48 solutions: 0 changed outcomes, 0 changed first errors" in result.output
    config = json.loads((tmp_path / "strict" / "run.json").read_text())["config"]
    assert config["regraded"]["run"] == str(run)
    assert config["checker"]["units_optional"] is False
    assert config["estimator"]["kind"] == "fixed"
    with pytest.raises(ShardError, match=r"checker.units_optional: False there, True here"):
        jobs.regrade(str(run), str(tmp_path / "strict"))


def test_what_cannot_be_graded_again_is_refused(tmp_path: Path) -> None:
    again = str(tmp_path / "again")
    (tmp_path / "tree").mkdir()
    with pytest.raises(ConfigError, match=r"estimator.kind=tree, .* cannot be replayed"):
        jobs.regrade(str(label(tmp_path / "tree", "estimator.kind=tree", count=4)), again)
    (tmp_path / "bare").mkdir()
    bare = label(tmp_path / "bare", "estimator.kind=fixed", "keep_rollouts=false", count=4)
    with pytest.raises(DataError, match="keep_rollouts=false"):
        jobs.regrade(str(bare), again)
    with pytest.raises(ConfigError, match="must not be the run that is graded again"):
        jobs.regrade(str(bare), str(bare))
    with pytest.raises(ConfigError, match="nonsense"):
        jobs.regrade(str(bare), again, checker=["checker.nonsense=true"])
    with pytest.raises(ShardError, match=r"has no run.json"):
        jobs.regrade(str(tmp_path), again)
    (tmp_path / "golds.jsonl").write_text('{"problem_id": "p0"}\n')
    with pytest.raises(DataError, match="line 1: a row needs problem_id, and answer"):
        jobs.regrade(str(bare), again, golds=str(tmp_path / "golds.jsonl"))
    for answer, why in [
        ("NaN", "is NaN"),
        ("true", "is a bool"),
        ("[]", "is an empty list"),
        ('"proof"', "says that there is no"),
    ]:
        (tmp_path / "golds.jsonl").write_text(f'{{"problem_id": "p0", "answer": {answer}}}\n')
        with pytest.raises(DataError, match=f"line 1: the corrected gold .* {why}"):
            jobs.regrade(str(bare), again, golds=str(tmp_path / "golds.jsonl"))


@pytest.mark.parametrize(
    ("completion", "prefix", "is_back"),
    [
        ("Wait, 3 + 4 is 7.", "", True),
        ("Let me correct that.", "", True),
        ("That's wrong: it is 7.", "", True),
        ("I made a mistake above.", "", True),
        ("等等, 这不对.", "", True),
        ("So 3 + 4 = 7.", "Since 3+4 = 8, ", True),
        ("So 3 + 4 = 7.", "Since 3+4 = 7, ", False),
        ("The waiter brings 3 plates.", "", False),
        ("x = 7 as x = 5 + 2.", "x = 3", False),
        ("They await 7 buses.", "", False),
    ],
)
def test_what_goes_back_on_its_prefix(completion: str, prefix: str, is_back: bool) -> None:
    assert corrects_prefix(completion, prefix) is is_back


def run_trace(folder: Path, *overrides: str) -> Path:
    """Label solutions by `trace`, reusing the recorded rollouts of a run by `fixed`."""
    source = write_problems(folder, 12)
    engine = f"policy.engine.kind={AnsweringEngine.__module__}:AnsweringEngine"
    keys = [f"problems.source={source}", "ray.address=none", engine, "seed=3", *overrides]
    bank = [f"out={folder / 'bank'}", "estimator={kind: fixed, rollouts: 4}"]
    traces = [f"out={folder / 'run'}", "estimator={kind: trace, pilot: 16}"]
    for run_keys in (bank, [*traces, f"solutions.run={folder / 'bank'}"]):
        config = load_config(
            LabelConfig, None, [*keys, *run_keys], allow=["tests.support.answering"]
        )
        jobs.label(config, lambda state: None)
    return folder / "run"


def test_a_run_is_labelled_by_all_sources_shown_and_graded_again_alike(tmp_path: Path) -> None:
    place = run_trace(tmp_path)
    rows = list(read_labels(Store(str(place))))
    labels = [label for row in rows for label in row.steps]
    for text, label in zip(
        [step.text for row in rows for step in row.solution.steps], labels, strict=True
    ):
        assert (label.committed is not None) == (
            "So the answer is" in text and not label.is_from_outcome
        )
    assert {label.committed for label in labels} == {None, Outcome.RIGHT, Outcome.WRONG}
    states = [label.state for label in labels]
    assert {"sound", "error", "recovered"} <= set(states)
    wrong = [
        AnsweringEngine._is_wrong("".join(step.text for step in row.solution.steps[: number + 1]))
        for row in rows
        for number in range(len(row.steps))
    ]
    labelled_wrong = [state in ("error", "carried") for state in states]
    assert sum(a == b for a, b in zip(labelled_wrong, wrong, strict=True)) / len(wrong) > 0.8
    jobs.regrade(str(place), str(tmp_path / "again"), allow=["tests.support.answering"])
    again = {row.solution.id: row for row in read_labels(Store(str(tmp_path / "again")))}
    for row in rows:
        assert again[row.solution.id].steps == row.steps
        assert again[row.solution.id].posterior == row.posterior
    shown = CliRunner().invoke(main, ["show", str(place)])
    assert shown.exit_code == 0, shown.output
