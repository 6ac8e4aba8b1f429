"""Answers at once, answers on the way, and completions that go back on what they continue."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from mclabel import jobs
from mclabel.checkers import Aside, Grade, GradeItem, here
from mclabel.checkers.math import MathChecker
from mclabel.cli import main
from mclabel.core.config.load import load_config
from mclabel.core.records import LabeledSolution, Outcome, Problem, Rollout, Verdict
from mclabel.engines import PolicySettings
from mclabel.labeling.completers import forced_text
from mclabel.labeling.config import LabelConfig, LabelSettings
from mclabel.labeling.estimators import Completer
from mclabel.labeling.journal import LabelJournal, read_entry
from mclabel.labeling.prefixes import goes_back
from mclabel.labeling.problem import Rolling, label_problem
from mclabel.run.shards.journal import BlockJournal
from mclabel.run.shards.labels import read_labels, read_rollouts
from mclabel.run.shards.store import Store
from tests.support.answering import FORCE, AnsweringEngine
from tests.support.one_engine import on_one_engine
from tests.support.scripted_jobs import write_problems

POLICY = PolicySettings(max_tokens=1000, engine=AnsweringEngine.Settings())
PROBLEM = Problem(id="p", text="Problem [answer 7]", answer="7")


def labelled(
    engine: AnsweringEngine,
    *,
    force: str = FORCE,
    max_tokens: int = 24,
    checker: MathChecker | None = None,
    journal: LabelJournal | None = None,
) -> tuple[list[LabeledSolution], list[Rollout], str | None]:
    settings = LabelSettings.model_validate(
        {"solutions": {"per_problem": 4}, "estimator": {"kind": "fixed", "rollouts": 2}}
    )
    shared = on_one_engine(engine, settings)
    shared = replace(shared, checker=checker or shared.checker)
    forced = Completer(name="forced", forced_tokens=max_tokens)
    rolling = [Rolling(completer=forced, policy=engine, force=force)]
    shared = replace(shared, rolling=rolling)
    found = asyncio.run(label_problem(PROBLEM, shared, journal=journal))
    lost = None if found.set_aside is None else found.set_aside.detail
    return found.labeled, found.rollouts, lost


def test_a_forced_answer_is_its_own_and_costs_its_own_tokens() -> None:
    rows, rollouts, _ = labelled(AnsweringEngine(POLICY))
    texts = {
        label.prefix_id: "".join(step.text for step in row.solution.steps[: number + 1])
        for row in rows
        for number, label in enumerate(row.steps[:-1])
    }
    assert len(rollouts) > 8
    for rollout in rollouts:
        prefix = texts[rollout.prefix_id]
        force = FORCE if "</think>" not in prefix else "\n\nThe answer is \\boxed{"
        assert rollout.text.startswith(force)
        assert rollout.num_tokens == len(rollout.text) - len(force) <= 24
        wrong = AnsweringEngine._is_wrong(prefix)
        # Not that of an answer on the way, of which the prefix may be full.
        assert rollout.outcome is (Outcome.WRONG if wrong else Outcome.RIGHT)
        assert rollout.completer == "forced" and rollout.step_ends is None
    assert rows[0].completers[0].forced_tokens == 24


class Failing(MathChecker):
    """Fails on all that it is to grade."""

    async def grade(self, items: Sequence[GradeItem], aside: Aside = here) -> list[Grade]:
        return [Grade(verdict=Verdict.UNKNOWN, failure="broken") for _ in items]


def test_a_forced_answer_that_a_checker_failed_on_is_graded_again_as_it_is(tmp_path: Path) -> None:
    store = Store(str(tmp_path), create=True)
    first = BlockJournal(store, "block", "one", read_entry)
    failing = Failing(MathChecker.Settings())
    _, before, _ = labelled(AnsweringEngine(POLICY), checker=failing, journal=LabelJournal(first))
    assert {one.outcome for one in before} == {Outcome.UNGRADED}
    first.flush()
    again = BlockJournal(store, "block", "two", read_entry)
    again.read()
    _, after, _ = labelled(AnsweringEngine(POLICY), journal=LabelJournal(again))
    assert [one.text for one in after] == [one.text for one in before]
    assert {one.outcome for one in after} == {Outcome.RIGHT, Outcome.WRONG}


def test_an_answer_that_is_cut_is_none() -> None:
    _, rollouts, _ = labelled(AnsweringEngine(POLICY), max_tokens=1)
    assert {one.outcome for one in rollouts} == {Outcome.TRUNCATED}
    assert {one.finish_reason for one in rollouts} == {"length"}


class Joining(AnsweringEngine):
    """Its tokenizer takes a closing mark behind a line break for something else."""

    def decode(self, ids: object) -> str:
        return super().decode(ids).replace("\n</think>", "\n<end>")  # type: ignore[arg-type]


def test_a_text_that_cannot_be_put_after_a_prefix_sets_the_problem_aside() -> None:
    _, rollouts, lost = labelled(Joining(POLICY), force="</think>x")
    assert not rollouts
    assert lost is not None and "cannot put force='</think>x' after a prefix" in lost
    assert "Begin force with a line break" in lost


def test_thinking_that_is_over_is_not_closed_again() -> None:
    assert forced_text(FORCE, "</think>", thinks=True) == FORCE
    assert forced_text(FORCE, "</think>", thinks=False) == "\n\nThe answer is \\boxed{"
    assert forced_text("So it is ", "</think>", thinks=False) == "So it is "


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
    assert goes_back(completion, prefix) is is_back


def run(folder: Path, *overrides: str) -> Path:
    source = write_problems(folder, 12)
    engine = f"policy.engine.kind={AnsweringEngine.__module__}:AnsweringEngine"
    force = FORCE.replace("\n", "\\n").replace("\\boxed", "\\\\boxed")
    completers = f'completers=[{{model: policy}}, {{model: policy, force: "{force}"}}]'
    keys = [f"problems.source={source}", f"out={folder / 'run'}", "ray.address=none", engine]
    keys += [completers, "estimator={kind: trace, pilot: 16, rollouts: 4}", "seed=3", *overrides]
    config = load_config(LabelConfig, None, keys, allow=["tests.support.answering"])
    jobs.label(config, lambda state: None)
    return folder / "run"


def test_a_run_is_labelled_by_all_sources_shown_and_graded_again_alike(tmp_path: Path) -> None:
    place = run(tmp_path)
    rows = list(read_labels(Store(str(place))))
    labels = [label for row in rows for label in row.steps]
    texts = [step.text for row in rows for step in row.solution.steps]
    for text, label in zip(texts, labels, strict=True):
        states_one = "So the answer is" in text and not label.is_outcome
        assert (label.committed is not None) == states_one
    assert {label.committed for label in labels} == {None, Outcome.RIGHT, Outcome.WRONG}
    rollouts = list(read_rollouts(Store(str(place))))
    assert any(one.completer == "forced" and one.text.startswith(FORCE) for one in rollouts)
    told = [label.state for label in labels]
    assert {"sound", "error", "recovered"} <= set(told)
    wrong = [
        AnsweringEngine._is_wrong("".join(step.text for step in row.solution.steps[: number + 1]))
        for row in rows
        for number in range(len(row.steps))
    ]
    found = [state in ("error", "carried") for state in told]
    assert sum(a == b for a, b in zip(found, wrong, strict=True)) / len(wrong) > 0.9
    jobs.regrade(str(place), str(tmp_path / "again"), allow=["tests.support.answering"])
    again = {row.solution.id: row for row in read_labels(Store(str(tmp_path / "again")))}
    for row in rows:
        assert again[row.solution.id].steps == row.steps
        assert again[row.solution.id].posterior == row.posterior
    shown = CliRunner().invoke(main, ["show", str(place)])
    assert shown.exit_code == 0, shown.output
