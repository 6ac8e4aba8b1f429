"""The choice of sampled solutions to label, and the valid uses of their outcomes."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from mclabel.core.records import Counts, Outcome, Problem, Solution, Step
from mclabel.data.steps import StepSplitter
from mclabel.engines.scripted import ScriptedEngine
from mclabel.labeling.config import LabelSettings
from mclabel.labeling.estimators.fixed import FixedEstimator
from mclabel.labeling.prefixes import PrefixTable
from mclabel.labeling.problem import ProblemLabels, label_problem
from mclabel.labeling.sampling import SampledSolutions, SolutionSettings, sample_solutions
from tests.support.one_engine import on_one_engine
from tests.support.scripted_jobs import scripted

LETTERS = {
    "R": Outcome.RIGHT,
    "W": Outcome.WRONG,
    "T": Outcome.TRUNCATED,
    "U": Outcome.UNGRADED,
}


def solution(index: int, outcome: Outcome) -> Solution:
    return Solution(
        id=str(index),
        problem_id="p",
        sample_index=index,
        text="ab",
        ids=(1, 2),
        steps=(Step(text="a", end=1), Step(text="b", end=2)),
        finish_reason="stop",
        origin="sampled",
        prediction=None,
        outcome=outcome,
    )


def draw(outcomes: str, **arguments: int) -> tuple[SampledSolutions, list[int]]:
    """Sample solutions with a row of outcomes, and return the result and the sampled indices."""
    indices = []

    async def sample(index: int) -> Solution:
        indices.append(index)
        return solution(index, LETTERS[outcomes[index]])

    return asyncio.run(sample_solutions(sample, **arguments)), indices  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("outcomes", "arguments", "kept", "num_sampled", "num_right"),
    [
        ("RWTU", {"batch_size": 4}, [0, 1, 2, 3], 4, 1),
        ("RRWW", {"batch_size": 4, "balance": 1, "max_samples": 8}, [0, 2], 4, 2),
        ("RRRRRWRR", {"batch_size": 4, "balance": 1, "max_samples": 8}, [0, 5], 8, 7),
        ("RRRRRWRRWR", {"batch_size": 4, "balance": 2, "max_samples": 10}, [0, 1, 5, 8], 10, 8),
        ("WWWRWWWWWW", {"batch_size": 4, "balance": 3, "max_samples": 10}, [0, 3], 10, 1),
        ("RRRRRRRR", {"batch_size": 4, "balance": 2, "max_samples": 8}, [], 8, 8),
        ("WWTUWWTU", {"batch_size": 4, "balance": 2, "max_samples": 8}, [], 8, 0),
        ("TRWU", {"batch_size": 4, "balance": 2, "max_samples": 4}, [1, 2], 4, 1),
    ],
)
def test_what_is_kept(
    outcomes: str, arguments: dict[str, int], kept: list[int], num_sampled: int, num_right: int
) -> None:
    sampled, indices = draw(outcomes, **arguments)
    assert [kept_solution.sample_index for kept_solution in sampled.kept] == kept
    assert (sampled.num_sampled, sampled.num_right) == (num_sampled, num_right)
    assert indices == list(range(num_sampled))


def test_only_the_draws_that_are_made_anyway_are_free_observations() -> None:
    sampled, _ = draw("WWWWRRRR", batch_size=4, balance=2, max_samples=8)
    assert sampled.first_batch_counts == Counts(num_wrong=4, num_tokens=8)
    plain, _ = draw("WRWW", batch_size=4)
    assert plain.first_batch_counts == Counts(num_right=1, num_wrong=3, num_tokens=8)


def test_outcomes_of_chosen_solutions_are_no_evidence() -> None:
    problem = Problem(id="p", text="?", answer="1")
    for free in (True, False):
        table = PrefixTable(
            problem,
            [solution(0, Outcome.RIGHT)],
            splitter=StepSplitter(),
            prompt_opens_thinking=False,
            kept_regardless_of_outcome=free,
        )
        assert [path.sampled for path in table.paths] == [free]


def label(number: int, policy: ScriptedEngine, **changes: int) -> ProblemLabels:
    settings = LabelSettings(
        solutions=SolutionSettings(per_problem=4, **changes),
        estimator=FixedEstimator.Settings(rollouts=4),
    )
    problem = Problem(id=f"p{number}", text=f"P{number} [answer {number}]", answer=str(number))
    return asyncio.run(label_problem(problem, on_one_engine(policy, settings)))


def test_balanced_labels_carry_the_pass_rate_before_the_choice() -> None:
    policy = ScriptedEngine(scripted())
    kept = dropped = 0
    for number in range(60):
        result = label(number, policy, balance=1, max_samples=4)
        num_right = [row.solution.outcome for row in label(number, policy).labeled].count(
            Outcome.RIGHT
        )
        if result.dropped_counts is not None:
            assert result.labeled == [] and num_right in (0, 4)
            assert result.dropped_counts == {"num_sampled": 4, "num_right": num_right}
            dropped += 1
            continue
        assert Counter(row.solution.outcome for row in result.labeled) == {
            Outcome.RIGHT: 1,
            Outcome.WRONG: 1,
        }
        for row in result.labeled:
            assert (row.num_sampled, row.num_sampled_right) == (4, num_right)
            assert row.chosen_by_outcome
            assert row.siblings.num_right == num_right
        kept += 1
    assert kept > 20 and dropped > 3
    assert not any(row.chosen_by_outcome for row in label(1, policy).labeled)
