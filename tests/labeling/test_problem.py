"""Labels from the scheduler on a scripted policy with known true values, and priors of workers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mclabel.checkers.math import MathChecker
from mclabel.core.errors import DataError, UnusableResponse
from mclabel.core.records import Completion, Counts, GivenSolution, Outcome, Problem
from mclabel.engines.scripted import ScriptedEngine
from mclabel.labeling.config import LabelSettings
from mclabel.labeling.estimators.posterior.priors import Priors, make_starting_priors
from mclabel.labeling.grading import grade_recorded_completions
from mclabel.labeling.problem import ProblemLabels, label_problem
from mclabel.labeling.rollouts import Sampler
from mclabel.run.cpu_executor import CpuExecutor
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from tests.support.one_engine import on_one_engine
from tests.support.scripted_jobs import (
    run_label_job,
    scripted,
    scripted_overrides,
    write_problems,
)


def problem(number: int) -> Problem:
    return Problem(id=f"p{number}", text=f"Problem {number} [answer {number}]", answer=str(number))


def label(
    number: int,
    policy: ScriptedEngine,
    solutions: tuple[GivenSolution, ...] = (),
    **changes: object,
) -> ProblemLabels:
    num_solutions = changes.pop("num_solutions", 4)
    settings = LabelSettings.model_validate(
        {
            "solutions": {"per_problem": num_solutions},
            "estimator": {"kind": "fixed", "rollouts": 16, **changes},
        }
    )
    return asyncio.run(
        label_problem(problem(number), on_one_engine(policy, settings), given=solutions)
    )


def test_truncated_rollouts_are_counted_apart() -> None:
    policy = ScriptedEngine(scripted(truncate_rate=0.5))
    rows = [row for n in range(20) for row in label(n, policy).labeled]
    steps = [step for row in rows for step in row.steps[:-1]]
    assert sum(s.counts.num_truncated for s in steps) > 0.3 * sum(
        s.counts.num_rollouts for s in steps
    )
    cut = [row for row in rows if row.solution.outcome is Outcome.TRUNCATED]
    assert cut and all(row.solution.prediction is None for row in cut)
    assert all(row.steps[-1].hard is None for row in cut if row.steps)


def test_given_solutions_keep_their_text_and_steps() -> None:
    policy = ScriptedEngine(scripted())
    text = "Line 1 is sound.\nLine 2 is wrong.\nLine 3 is sound.\nLine 4 is sound.\n\\boxed{90}"
    (row,) = label(9, policy, solutions=(GivenSolution(text=text),)).labeled
    assert row.solution.text == text == "".join(s.text for s in row.solution.steps)
    assert row.solution.origin == "given"
    assert row.first_error == 1
    assert row.siblings == Counts()
    (whole,) = label(
        9, policy, solutions=(GivenSolution(text=text, step_ends=(34, len(text))),)
    ).labeled
    assert [len(s.text) for s in whole.solution.steps] == [34, len(text) - 34]


@pytest.mark.parametrize("kind", ["fixed", "bisect", "tree", "outcome"])
@pytest.mark.parametrize("room", [0, 1])
def test_a_given_solution_that_leaves_no_room_has_no_rollouts_against_it(
    kind: str, room: int
) -> None:
    solution = GivenSolution(text="Line 1 is sound.\nLine 2 is sound.\n\\boxed{90}")
    num_prefix = solution.text.index("\\boxed")
    policy = ScriptedEngine(scripted(max_tokens=num_prefix + room))
    changes = {} if kind == "outcome" else {"rollouts": 4}
    settings = LabelSettings.model_validate({"estimator": {"kind": kind, **changes}})
    result = asyncio.run(
        label_problem(problem(9), on_one_engine(policy, settings), given=(solution,))
    )
    if room or kind == "outcome":
        (row,) = result.labeled
        assert result.set_aside is None and row.solution.text == solution.text
        return
    assert result.labeled == [] and result.rollouts == []
    assert result.set_aside is not None and result.set_aside.reason == "solution_too_long"
    assert f"ends after {num_prefix} tokens" in result.set_aside.detail
    assert "Raise policy.max_tokens" in result.set_aside.detail
    strict = settings.model_copy(update={"strict": True})
    with pytest.raises(DataError, match="problem p9: a step of one of its solutions ends after"):
        asyncio.run(label_problem(problem(9), on_one_engine(policy, strict), given=(solution,)))


def test_a_given_solution_that_the_tokenizer_changes_leaves_the_others() -> None:
    class Lossy(ScriptedEngine):
        def encode(self, text: str) -> tuple[int, ...]:
            return super().encode(text.strip())

    lost, kept = GivenSolution(text=" x\n\\boxed{9}"), GivenSolution(text="x\n\\boxed{9}")
    result = label(9, Lossy(scripted()), solutions=(lost, kept))
    (row,) = result.labeled
    assert row.solution.text == kept.text and row.solution.sample_index == 1
    assert result.set_aside is not None and result.set_aside.reason == "not_reproduced"
    assert "1 of its 2 given solutions (index 0, counted from 0)" in result.set_aside.detail
    alone = label(9, Lossy(scripted()), solutions=(lost,))
    assert alone.labeled == [] and alone.set_aside is not None
    settings = LabelSettings(strict=True)
    with pytest.raises(DataError, match="problem p9: 1 of its 2 given solutions"):
        shared = on_one_engine(Lossy(scripted()), settings)
        asyncio.run(label_problem(problem(9), shared, given=(lost, kept)))


@pytest.mark.parametrize("kind", ["fixed", "tree"])
def test_what_the_engine_cannot_give_is_a_rollout_with_a_reason(kind: str) -> None:
    class Nonsense(ScriptedEngine):
        count = 0

        async def sample(self, *args: Any, **how: Any) -> Completion:
            self.count += 1
            if self.count % 5 == 0:
                raise UnusableResponse("a response of the server has no choices")
            return await super().sample(*args, **how)

    result = label(9, Nonsense(scripted()), kind=kind, rollouts=8)
    failed = [rollout for rollout in result.rollouts if rollout.finish_reason == "failed"]
    assert failed and len(failed) < len(result.rollouts)
    for rollout in failed:
        assert (rollout.outcome, rollout.num_tokens, rollout.text) == (Outcome.UNGRADED, 0, "")
        assert rollout.reason == "a response of the server has no choices"
    recorded = [(problem(9), rollout.text, rollout.finish_reason) for rollout in failed]
    (again, *_) = grade_recorded_completions(recorded, lambda items: [])
    # grading again does not turn a failed rollout into a wrong one
    assert again.outcome is Outcome.UNGRADED


def test_the_bare_problem_has_rollouts_of_its_own() -> None:
    fixed = label(3, ScriptedEngine(scripted()), root_rollouts=12).labeled[0]
    assert fixed.root_value == (fixed.root.num_right + fixed.siblings.num_right) / 16


@pytest.mark.parametrize(
    ("text", "finish_reason", "gold", "outcome"),
    [
        ("\\boxed{1/2}", "stop", "0.5", Outcome.RIGHT),
        ("\\boxed{\\cos 2x}", "stop", "1-2\\sin^2 x", Outcome.RIGHT),
        ("\\boxed{3}", "stop", "4", Outcome.WRONG),
        ("\\boxed{\\sum n}", "stop", "4", Outcome.UNGRADED),
        ("\\boxed{4}", "length", "4", Outcome.TRUNCATED),
    ],
)
def test_a_sampler_grades_completions(
    text: str, finish_reason: str, gold: str, outcome: Outcome
) -> None:
    completion = Completion(ids=(1,), text=text, finish_reason=finish_reason)  # type: ignore[arg-type]

    async def run() -> Outcome:
        sampler = Sampler(
            problem=Problem(id="p", text="?", answer=gold),
            prompt=(),
            policy=ScriptedEngine(scripted()),
            run_seed=0,
            priority=0,
            on_completion=lambda outcome: None,
            journal=None,
            checker=MathChecker(MathChecker.Settings()),
            executor=CpuExecutor(),
        )
        return (await sampler.grade(completion)).outcome

    assert asyncio.run(run()) is outcome


def test_a_second_worker_begins_with_what_the_first_learned(tmp_path: Path) -> None:
    more = ["ray.address=none", "solutions.per_problem=2", "block_problems=10"]
    more.append("estimator={kind: posterior, rollouts: 8, min_gain: 0.08, pilot: 20}")
    overrides = scripted_overrides(write_problems(tmp_path, 30), tmp_path / "run", *more)
    run_label_job(
        overrides, choose_blocks=lambda blocks: [n for n, _ in blocks.iter_item_counts()][:2]
    )
    run_label_job(overrides)
    store = Store(str(tmp_path / "run"))
    rests_on = {row.problem.id: row.priors for row in read_labels(store)}
    assert {rests_on[f"p{i}"] for i in range(20)} == {make_starting_priors().id}
    # the last priors that the first worker fitted
    (adopted,) = {rests_on[f"p{i}"] for i in range(20, 30)}
    assert (
        Priors.from_json((store.read(f"priors/{adopted}.json") or b"").decode()).num_solutions >= 20
    )
