"""Labels combined with opinions: the rules, the posterior, and a run that other verbs read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mclabel.core.config.load import load_config
from mclabel.core.errors import ConfigError, DataError, ShardError
from mclabel.core.records import Claim, LabeledSolution, SourceOpinion
from mclabel.domains.registry import find_true_first_error
from mclabel.evaluate.labels.job import evaluate_labels
from mclabel.judge.combine import combine
from mclabel.judge.consensus.rules import same_location
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.job import label
from mclabel.prm.examples.targets import compute_step_targets
from mclabel.prm.scoring.items import convert_solution_to_item
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.manifest import MANIFEST, SemanticConfig, claim_manifest
from mclabel.run.shards.opinions import commit_opinions
from mclabel.run.shards.store import Store
from mclabel.run.verify.run import verify
from tests.support.commands import run_verb


def make_opinion(
    error: int | None, *, is_known: bool = True, claim: Claim = "where"
) -> SourceOpinion:
    return SourceOpinion(source="x", claim=claim, is_known=is_known, first_error=error)


@pytest.mark.parametrize(
    ("opinions", "agree"),
    [
        ([make_opinion(2), make_opinion(2)], True),
        ([make_opinion(2), make_opinion(1)], False),
        ([make_opinion(None), make_opinion(None)], True),
        ([make_opinion(None), make_opinion(0)], False),
        ([make_opinion(1), make_opinion(None, is_known=False)], False),
        ([make_opinion(None), make_opinion(None, is_known=False)], False),
        ([make_opinion(1), make_opinion(3), make_opinion(3)], False),
        ([make_opinion(3), make_opinion(None), make_opinion(None)], False),
        # A false equality at step 1 means that the first error is at step 1 or before it.
        ([make_opinion(3), make_opinion(3), make_opinion(1, claim="at_or_before")], False),
        ([make_opinion(1), make_opinion(1), make_opinion(3, claim="at_or_before")], True),
        ([make_opinion(1), make_opinion(1), make_opinion(None, claim="at_or_before")], True),
        ([make_opinion(None), make_opinion(None), make_opinion(2, claim="at_or_before")], False),
        ([make_opinion(None, is_known=False), make_opinion(None)], False),
    ],
)
def test_sources_agree_on_one_location(opinions: list[SourceOpinion], agree: bool) -> None:
    assert same_location(opinions) is agree


def write_opinions(
    folder: Path,
    rows: Sequence[LabeledSolution],
    say: Callable[[LabeledSolution], int | None],
    *,
    judge: str = "critic",
    claim_: Claim = "where",
    scores: Callable[[LabeledSolution], list[float]] = lambda row: [],
    is_known: Callable[[LabeledSolution], bool] = lambda row: True,
) -> str:
    """Write a judge's opinions on a labelling run, and return the folder."""
    store = Store(str(folder), create=True)
    config = {"task": "judge", "judge": {"kind": judge, "claim": claim_, "split": "line"}}
    claim_manifest(
        store, MANIFEST, SemanticConfig.from_config(config), {"input": {"solutions": "run"}}
    )
    commit_opinions(
        store,
        "block",
        "attempt",
        [
            {
                "id": row.solution.id, "row": number,
                "input": convert_solution_to_item(number, row).row,
                "num_steps": len(row.steps),
                "is_known": is_known(row), "first_error": say(row), "sureness": None, "reason": "",
                "votes": [], "scores": scores(row), "flags": [],
                "answers": [], "num_tokens": 0,
            }
            for number, row in enumerate(rows, 1)
            if row.steps
        ],
        {"set_aside": {}},
    )  # fmt: skip
    return str(folder)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("combine") / "run"
    keys = [
        *("problems.source=arith", "problems.limit=8", "policy.max_tokens=200", f"out={out}"),
        *("policy.engine.max_live=256", "ray.address=none", "estimator.pilot=20"),
    ]
    label(load_config(LabelConfig, None, keys), lambda state: None)
    return str(out)


def find_truth(row: LabeledSolution) -> int | None:
    return find_true_first_error(row.problem.meta, [step.text for step in row.solution.steps])


def test_a_judge_labels_alone_and_what_it_does_not_know_is_not_kept(
    run: str, tmp_path: Path
) -> None:
    rows = list(read_labels(Store(run)))
    unknown = rows[0].solution.id

    def make_scores(row: LabeledSolution) -> list[float]:
        return [0.3 if number == find_truth(row) else 0.9 for number in range(len(row.steps))]

    prm = write_opinions(
        tmp_path / "prm",
        rows,
        find_truth,
        claim_="scores",
        scores=make_scores,
        is_known=lambda row: row.solution.id != unknown,
    )
    out = tmp_path / "out"
    run_verb(["combine", run, f"prm={prm}", "-o", str(out), "--rule", "judge"])
    for row in read_labels(Store(str(out))):
        assert row.is_kept == (row.solution.id != unknown)
        if row.is_kept:
            assert row.first_error == find_truth(row) and row.posterior is None
            assert compute_step_targets(row, "soft") == tuple(make_scores(row))
            end = len(row.steps) if row.first_error is None else row.first_error
            assert [step.hard for step in row.steps] == [n < end for n in range(len(row.steps))]
            assert {step.source for step in row.steps} == {"judge"}
    assert verify(Store(str(out))).is_sound
    run_verb(["eval", "labels", str(out)])
    twice = ["combine", run, f"a={prm}", f"b={prm}", "-o", str(out), "--rule", "judge"]
    assert "labels of one judge" in " ".join(run_verb(twice, code=2).output.split())


@pytest.mark.slow
def test_the_posterior_follows_a_judge_that_knows_and_the_run_is_like_any_other(
    run: str, tmp_path: Path
) -> None:
    rows = list(read_labels(Store(run)))
    knowing = write_opinions(tmp_path / "knowing", rows, find_truth)
    out = tmp_path / "out"
    command = ["combine", run, f"knowing={knowing}", "-o", str(out)]
    result = run_verb(command)
    *_, combined, differing, look = result.output.splitlines()
    assert combined.startswith("Combined by posterior: 32 of 32 solutions are kept")
    assert "the first error changed in" in differing and f"mclabel show {out}" in look
    row_by_id = {row.solution.id: row for row in read_labels(Store(str(out)))}
    hits = [row_by_id[row.solution.id].first_error == find_truth(row) for row in rows]
    assert np.mean(hits) > np.mean([row.first_error == find_truth(row) for row in rows])
    for row in rows:
        now = row_by_id[row.solution.id]
        assert now.consensus is not None and now.consensus.rule == "posterior"
        assert [opinion.source for opinion in now.consensus.opinions] == ["rollouts", "knowing"]
        assert now.consensus.opinions[0].first_error == row.first_error
        assert now.posterior is not None and sum(now.posterior) == pytest.approx(1)
        assert [step.counts for step in now.steps] == [step.counts for step in row.steps]
        hard = [step.hard for step in now.steps[:-1]]
        error = now.first_error
        assert hard == [error is None or number < error for number in range(len(hard))]
    assert verify(Store(str(out))).is_sound
    assert "were already combined by posterior" in run_verb(command).output
    run_verb(["show", str(out)])
    measured = evaluate_labels(str(out), None, None, seed=0).sources
    assert measured is not None and measured.rule == "posterior"
    assert measured.sources["knowing"].learned_rates != {}


def test_judges_that_repeat_each_other_are_named(run: str, tmp_path: Path) -> None:
    rows = list(read_labels(Store(run)))
    marked = rows[0].solution.id
    once = write_opinions(tmp_path / "once", rows, lambda row: len(row.steps) // 2)
    again = write_opinions(
        tmp_path / "again",
        rows,
        lambda row: None if row.solution.id == marked else len(row.steps) // 2,
    )
    report = combine(run, [f"once={once}", f"again={again}"], str(tmp_path / "out"))
    assert [sorted(group) for group in report.groups] == [["again", "once"]]
    assert "again repeats errors of once" in " ".join(report.lines())


def test_what_is_not_kept_is_there_and_is_neither_exported_nor_trained_on(
    run: str, tmp_path: Path
) -> None:
    rows = list(read_labels(Store(run)))
    agreeing = {row.solution.id for row in rows[::2]}
    half = write_opinions(
        tmp_path / "half",
        rows,
        lambda row: row.first_error if row.solution.id in agreeing
        else (0 if row.first_error is None else None),
    )  # fmt: skip
    out = tmp_path / "out"
    report = combine(run, [half], str(out), rule="same_location")
    assert (report.num_solutions, report.num_kept) == (32, 16)
    combined = list(read_labels(Store(str(out))))
    assert len(combined) == 32 and {row.solution.id for row in combined if row.is_kept} == agreeing
    result = run_verb(["export", str(out), "--to", "trl", "-o", str(tmp_path / "trl")])
    assert len((tmp_path / "trl" / "data.jsonl").read_text().splitlines()) <= 16
    assert "16 were not kept" in " ".join(result.output.split())
    preflight = ("head=likelihood", "--preflight", f"labels=[{out}]", f"out={tmp_path / 'prm'}")
    (tmp_path / "train.yaml").write_text("base: arith:policy\n")
    result = run_verb(["train", str(tmp_path / "train.yaml"), *preflight])
    assert "16 that a consensus of judges does not keep" in " ".join(result.output.split())


def test_bad_combinations_end_with_one_clear_word(run: str, tmp_path: Path) -> None:
    rows = list(read_labels(Store(run)))
    fine = write_opinions(tmp_path / "fine", rows, lambda row: None)
    unknown_row = replace(rows[0], solution=replace(rows[0].solution, id="another"))
    others = write_opinions(tmp_path / "others", [unknown_row], lambda row: None)
    changed = [
        replace(row, problem=replace(row.problem, text=row.problem.text + " Really?"))
        if number in (3, 5) else row
        for number, row in enumerate(rows)
    ]  # fmt: skip
    elsewhere = write_opinions(tmp_path / "elsewhere", changed, lambda row: None)
    first = min(rows[3].solution.id, rows[5].solution.id)
    out = str(tmp_path / "out")
    cases: list[tuple[type[Exception], str, list[str], dict[str, Any]]] = [
        (ConfigError, "must not be the run that is combined", [fine], {"out": run}),
        (DataError, "has no opinion on the solutions of", [others], {}),
        (DataError, f"2 solutions of .* other texts .* being {first}.*Judge", [elsewhere], {}),
        (ConfigError, "b: has the same opinions as a", [f"a={fine}", f"b={fine}"], {}),
        (ConfigError, "must be a run, or NAME=RUN", [f"[red]x={fine}"], {}),
        (ShardError, "is not a run of `mclabel judge`", [run], {}),
        (ConfigError, "critic: 2 runs of opinions have this name", [fine, fine], {}),
        (ConfigError, "the run's own labels have this name", [f"rollouts={fine}"], {}),
        (ConfigError, "works only with --rule posterior", [fine],
         {"rule": "same_location", "least_belief": 0.5}),
        (ConfigError, "--rule oracle", [fine], {"rule": "oracle"}),
    ]  # fmt: skip
    for error, message, opinions, settings in cases:
        with pytest.raises(error, match=message):
            combine(run, opinions, **{"out": out, **settings})
    assert not Path(out).exists()
    combine(run, [fine], out)
    with pytest.raises(ConfigError, match="is already a combined run"):
        combine(out, [fine], str(tmp_path / "twice"))
    result = run_verb(["regrade", out, "-o", str(tmp_path / "graded")], code=2)
    assert "are combined with opinions of judges" in " ".join(result.output.split())
