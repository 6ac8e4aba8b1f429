from __future__ import annotations

import random
from collections import Counter

import pytest

from mclabel.core.records import Problem
from mclabel.domains.arith.misconceptions import write_misread_solution
from mclabel.domains.arith.problems import assign_split, generate_problems
from mclabel.domains.arith.program import MAX_VALUE, Program, write_reference_solution
from mclabel.domains.arith.stories import FAMILIES, HELD_OUT_FAMILIES, TRAIN_FAMILIES
from mclabel.domains.arith.verify import StepTruth, verify_steps


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    return generate_problems(300, seed=5, split="test", families=list(FAMILIES))


def read_program(problem) -> Program:  # type: ignore[no-untyped-def]
    return Program.from_json(problem.meta["program"])


@pytest.mark.slow
def test_splits_never_share_a_problem_whatever_the_seeds() -> None:
    texts = {
        split: {p.text for seed in (0, 1) for p in generate_problems(100, seed=seed, split=split)}
        for split in ("train", "validation", "test")
    }
    assert not texts["train"] & texts["test"]
    assert not texts["train"] & texts["validation"]
    assert not texts["validation"] & texts["test"]
    assert {assign_split(text) for text in texts["test"]} == {"test"}


def test_problems_are_distinct_and_spread_over_families_and_lengths() -> None:
    problems = generate_problems(600, seed=3, split="test")
    assert len({p.text for p in problems}) == len({p.id for p in problems}) == 600
    families = Counter(p.meta["family"] for p in problems)
    assert set(families) == set(TRAIN_FAMILIES)
    assert min(families.values()) > 60
    steps = Counter(p.meta["num_steps"] for p in problems)
    assert set(steps) == set("345678")
    assert min(steps.values()) > 60
    assert 0.06 < sum(p.meta["answer_type"] == "small" for p in problems) / 600 < 0.14


def test_families_kept_out_of_training_are_refused_there() -> None:
    with pytest.raises(ValueError, match="kept out of training"):
        generate_problems(1, seed=0, split="train", families=HELD_OUT_FAMILIES)
    with pytest.raises(ValueError, match="must be among"):
        generate_problems(1, seed=0, split="test", families=["poetry"])


def test_reference_solutions_are_right_and_as_long_as_told(problems: list[Problem]) -> None:
    for problem in problems:
        steps = write_reference_solution(read_program(problem)).split("\n")
        assert set(verify_steps(read_program(problem), steps)) == {StepTruth.RIGHT}
        assert len(steps) == int(problem.meta["num_steps"]) + 1
        assert steps[-1] == f"The answer is \\boxed{{{problem.answer}}}."
        numbers = [v for n in read_program(problem).nodes for v in (n.left, n.right, n.value)]
        assert all(1 <= number <= MAX_VALUE for number in numbers)


def test_every_fact_a_step_uses_stands_in_the_problem(problems: list[Problem]) -> None:
    words = {"half": 2, "third": 3, "quarter": 4, "fifth": 5}
    for problem in problems:
        text = problem.text.replace(".", " ").replace("?", " ").split()
        stated = {int(w) for w in text if w.isdigit()} | {words[w] for w in text if w in words}
        for node in read_program(problem).nodes:
            derived = {read_program(problem).nodes[i].value for i in node.needs}
            assert {node.left, node.right} <= stated | derived


def test_misreadings_calculate_rightly_and_are_found_as_errors_of_logic(
    problems: list[Problem],
) -> None:
    rng = random.Random(0)
    errors: Counter[str] = Counter()
    lucky = 0
    for problem in problems * 3:
        text, misread_any = write_misread_solution(
            read_program(problem), problem.text, rng=rng, strength=1.5
        )
        truths = verify_steps(read_program(problem), text.split("\n"))
        first = next((t for t in truths if t is not StepTruth.RIGHT), None)
        errors[str(first)] += 1
        lucky += first is not None and text.endswith(f"{{{problem.answer}}}.")
        if not misread_any:
            assert first is None
    assert errors["arithmetic"] == errors["malformed"] == errors["answer"] == 0
    assert errors["logic"] > 150
    assert lucky > 0  # right answers through wrong steps exist
