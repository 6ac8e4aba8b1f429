"""The sample of solutions to annotate: its probabilities and its division among people."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from mclabel.annotate.items import AnnotationSettings, Item, draw_items
from mclabel.core.errors import DataError
from mclabel.core.records import LabeledSolution, Outcome
from mclabel.data.readers.solutions import read_selected
from tests.support.commands import run_verb
from tests.support.shown import solution, write_run


def world() -> list[LabeledSolution]:
    """Return 150 right solutions, 40 wrong ones, 8 long right ones and 2 truncated ones."""
    kinds = [(150, 2, Outcome.RIGHT), (40, 3, Outcome.WRONG), (8, 14, Outcome.RIGHT)]
    kinds.append((2, 2, Outcome.TRUNCATED))
    rows = []
    for count, num_steps, outcome in kinds:
        for _ in range(count):
            good = [4] * (num_steps - 1) + [0]
            steps = [f"{i}\n" for i in range(num_steps)]
            rows.append(solution(len(rows), steps, good, outcome=outcome))
    return rows


ROWS = world()


def draw_sample(**changes: object) -> list[Item]:
    settings = AnnotationSettings(id="x", run="r", run_id="r", **{"sample": 40, **changes})  # type: ignore[arg-type]
    rows = list(ROWS)
    random.Random(settings.seed + len(settings.people)).shuffle(rows)
    return draw_items(lambda: rows, settings)


def test_weights_add_up_to_the_run_and_rare_cases_are_drawn() -> None:
    items = draw_sample()
    assert len(items) == 40
    assert sum(1 / item.probability for item in items) == pytest.approx(200)
    by_stratum = Counter(item.stratum for item in items)
    assert set(by_stratum) == {
        "right, no error, 1 to 3 steps", "wrong, error, 1 to 3 steps",
        "right, no error, over 12 steps", "truncated, undecided, 1 to 3 steps",
    }  # fmt: skip
    # shares follow the square roots of 150, 40, 8 and 2
    assert by_stratum["right, no error, 1 to 3 steps"] < 24
    assert by_stratum["truncated, undecided, 1 to 3 steps"] == 2


def test_the_draw_is_of_ids_and_seed_alone() -> None:
    assert draw_sample() == draw_sample()
    assert {item.id for item in draw_sample()} != {item.id for item in draw_sample(seed=1)}


@pytest.mark.parametrize("sample", [1, 2, 3, 200, 1000])
def test_any_size_gives_every_solution_a_chance(sample: int) -> None:
    items = draw_sample(sample=sample)
    assert len(items) == min(sample, 200)
    assert sum(1 / item.probability for item in items) == pytest.approx(200)


def test_people_share_the_work_and_overlap_in_what_was_asked() -> None:
    items = draw_sample(people=("ana", "ben", "eva"), overlap=0.25)
    twice = [item for item in items if len(item.people) == 2]
    assert len(twice) == 10
    assert all(len(set(item.people)) == 2 for item in twice)
    work = Counter(person for item in items for person in item.people)
    assert max(work.values()) - min(work.values()) <= 2
    # every pair of people shares solutions
    assert len({frozenset(item.people) for item in twice}) == 3
    assert all(len(item.people) == 1 for item in draw_sample(overlap=1.0))


def test_a_selection_names_the_solutions_and_their_probabilities(tmp_path: Path) -> None:
    rows = [solution(n, [f"{n}\n", "b"], [4, 4], problem=f"Problem {n}") for n in range(8)]
    run, chosen = write_run(tmp_path / "run", rows, None), str(tmp_path / "next.parquet")
    run_verb(["select", run, "--rule", "uniform", "--budget", "4", "-o", chosen])
    selected = read_selected(chosen)
    settings = AnnotationSettings(id="x", run=run, run_id="r")
    items = draw_items(lambda: rows, settings, selected)
    assert {item.id: item.probability for item in items} == selected.probabilities
    assert all(item.people == ("me",) and item.stratum == "selected" for item in items)
    with pytest.raises(DataError, match=r"--select .*lacks 4 of its 4 solutions"):
        draw_items(lambda: world()[150:], settings, read_selected(chosen, "--select "))
    changed = [solution(n, [f"{n}!\n", "b"], [4, 4], problem=f"Problem {n}") for n in range(8)]
    with pytest.raises(DataError, match=r"--select .*has another text"):
        draw_items(lambda: changed, settings, read_selected(chosen, "--select "))
    refused = ["annotate", run, "-o", str(tmp_path / "out"), "--select", chosen, "--sample", "3"]
    assert "must not be given with --select" in run_verb(refused, code=2).output
