"""Targets and weights compared with literals, and solutions that cannot be used for training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mclabel.core.errors import DataError
from mclabel.core.records import Counts, LabeledSolution, Outcome, StepLabel
from mclabel.data.leaks import normalize_for_leaks, read_leak_keys
from mclabel.prm.examples.build import ExampleSettings, make_examples
from mclabel.prm.examples.encode import PackedExamples, StepEncoder
from mclabel.prm.examples.targets import compute_step_targets, compute_step_weights
from mclabel.prm.training.items import LengthGroupedSampler
from mclabel.prm.training.preflight import preflight
from tests.support.labelled import arith_rows, arith_text, write_run

TEXT = arith_text()
STEP = TEXT.token_id("<|step|>")


def make_label(right: int, trials: int, *, source: str = "fixed", **changes: object) -> StepLabel:
    step_label = StepLabel(
        prefix_id="",
        counts=Counts(num_right=right, num_wrong=trials - right),
        source=source,  # type: ignore[arg-type]
        hard=right > 0,
        value=right / trials if trials else None,
        low=0.1,
        high=0.4,
    )
    return replace(step_label, **changes)  # type: ignore[arg-type]


@pytest.fixture
def row() -> LabeledSolution:
    """Return a solution with values .5, .25, 0 and a wrong outcome; its problem's value is .5."""
    some = next(r for r in arith_rows(20) if len(r.steps) >= 4)
    steps = (
        make_label(4, 8),
        make_label(1, 4, low=0.0, high=0.75),
        make_label(0, 8),
        make_label(0, 0, source="outcome", hard=False, value=0.0),
    )
    return replace(
        some,
        solution=replace(some.solution, steps=some.solution.steps[:4], outcome=Outcome.WRONG),
        steps=steps,
        first_error=2,
        root_value=0.5,
        posterior=(0.1, 0.2, 0.5, 0.1, 0.1),
    )


def test_exact_truth_is_a_target_of_the_domain_that_knows_it() -> None:
    rows = arith_rows(40)
    for row in rows:
        first = len(row.steps) if row.first_error is None else row.first_error
        assert compute_step_targets(row, "exact") == tuple(
            float(n < first) for n in range(len(row.steps))
        )
    assert len({row.first_error for row in rows}) > 2
    without_meta = replace(rows[0], problem=replace(rows[0].problem, meta={}))
    with pytest.raises(DataError, match=r"target=exact works only for arith and pyarith"):
        compute_step_targets(without_meta, "exact")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("hard", (1.0, 1.0, 0.0, 0.0)),
        ("soft", (0.5, 0.25, 0.0, 0.0)),
        ("advantage", (0.5, 0.375, 0.375, 0.5)),  # V(t) - V(t - 1) = 0, -.25, -.25, 0
        (
            "neutral",
            (1.0, 0.5, 0.0, 0.0),
        ),  # sound above .25, half of the value of the problem alone
        ("posterior", pytest.approx((0.9, 0.7, 0.2, 0.1))),
        ("outcome", (None, None, None, 0.0)),
        ("outcome_steps", (0.0, 0.0, 0.0, 0.0)),
    ],
)
def test_targets(row: LabeledSolution, target: str, expected: object) -> None:
    assert compute_step_targets(row, target) == expected


def test_what_is_not_known_has_no_target(row: LabeledSolution) -> None:
    blind = replace(row.steps[1], hard=None, value=None)
    unknown = replace(
        row,
        steps=(row.steps[0], blind, *row.steps[2:]),
        root_value=None,
        posterior=None,
        solution=replace(row.solution, outcome=Outcome.UNGRADED),
    )
    for target, expected in {
        "hard": (1.0, None, 0.0, 0.0),
        "soft": (0.5, None, 0.0, 0.0),
        "advantage": (None, None, None, 0.5),
        "posterior": (None,) * 4,
        "outcome": (None,) * 4,
    }.items():
        assert compute_step_targets(unknown, target) == expected
    assert (
        compute_step_targets(
            replace(unknown, steps=(replace(blind, mean=0.3), *row.steps[1:])), "soft"
        )[0]
        == 0.3
    )


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ("equal", (1, 1, 1, 1)),
        ("rollouts", (1.0, 0.5, 1.0, 1.0)),
        ("interval", (0.7, 0.25, 0.7, 1.0)),
    ],
)
def test_weights(row: LabeledSolution, weights: str, expected: tuple[float, ...]) -> None:
    assert compute_step_weights(row, weights) == pytest.approx(expected)


def test_packed_examples_come_out_as_they_went_in() -> None:
    examples = make_examples(
        arith_rows(12),
        StepEncoder(TEXT, step_id=None, max_tokens=512),
        ExampleSettings(target="soft", validation=0.0),
    ).train
    plain = list(examples)
    assert list(PackedExamples(plain)) == plain
    assert examples[3:5] == plain[3:5] and examples[-1] == plain[-1]
    assert examples.lengths == [len(e.encoded.ids) for e in plain]
    assert {e.is_right for e in plain} == {True, False}


def test_too_long_solutions_are_dropped_or_cut_and_counted() -> None:
    rows = arith_rows(20)
    whole = StepEncoder(TEXT, step_id=STEP, max_tokens=10_000)
    lengths = sorted(len(whole.encode_labelled(r).ids) for r in rows)
    encoder = StepEncoder(TEXT, step_id=STEP, max_tokens=lengths[9])
    dropped = make_examples(rows, encoder, ExampleSettings(target="hard", validation=0.0))
    assert len(dropped.train) + dropped.num_too_long == 20 and dropped.num_too_long > 0
    assert dropped.num_refused == 0 and "more than max_tokens" in str(dropped.first_refused)
    cut = make_examples(
        rows, encoder, ExampleSettings(target="hard", validation=0.0, too_long="cut")
    )
    assert cut.num_cut == dropped.num_too_long and len(cut.train) == 20
    for example, row in zip(cut.train, rows, strict=True):
        ids, full = example.encoded.ids, whole.encode_labelled(row)
        assert ids == full.ids[: len(ids)] and len(ids) <= lengths[9]
        assert example.encoded.positions == full.positions[: len(example.targets)]
        assert example.targets == compute_step_targets(row, "hard")[: len(example.targets)]
    # an ORM's only label is at the end, which is cut off
    orm = make_examples(
        rows, encoder, ExampleSettings(target="outcome", validation=0.0, too_long="cut")
    )
    assert orm.num_too_long == cut.num_cut and orm.num_cut == 0


def test_problems_of_an_evaluation_set_are_not_trained_on(tmp_path: Path) -> None:
    rows = arith_rows(12)
    assert normalize_for_leaks("  Two\tapples, ½? ") == normalize_for_leaks("two apples ½")
    assert normalize_for_leaks("1 + 2") != normalize_for_leaks("1 - 2")
    run = write_run(tmp_path / "eval", rows[:2])
    file = tmp_path / "eval.jsonl"
    file.write_text('{"question": "' + rows[2].problem.text.upper() + '"}\n')
    keys = read_leak_keys([run, str(file)])
    assert normalize_for_leaks(rows[0].problem.text) in keys and len(keys) == 2
    encoder = StepEncoder(TEXT, step_id=None, max_tokens=512)
    examples = make_examples(
        rows, encoder, ExampleSettings(validation=0.0, evaluation=[run, str(file)])
    )
    assert examples.num_leaked == 4 and len(examples.train) == 8
    every = write_run(tmp_path / "every", rows)
    with pytest.raises(DataError, match="12 are in an evaluation set"):
        make_examples(rows, encoder, ExampleSettings(evaluation=[every]))


def test_preflight_aligns_tokens_and_labels() -> None:
    encoder = StepEncoder(TEXT, step_id=STEP, max_tokens=512)
    rows = arith_rows(12)
    report = preflight(
        make_examples(rows, encoder, ExampleSettings(target="hard", validation=0.0)),
        target="hard",
        decode=TEXT.decode,
    )
    targets = [t or 0 for r in rows for t in compute_step_targets(r, "hard")]
    assert (report.num_labels, report.num_steps, report.num_sound) == (
        len(targets),
        len(targets),
        targets.count(1.0),
    )
    assert report.mean_target == pytest.approx(sum(targets) / len(targets))
    lines = list(report.lines(examples=True))
    for line, target in zip(
        lines[0].splitlines()[2:], compute_step_targets(rows[0], "hard"), strict=True
    ):
        assert line.endswith(f"'<|step|>'  <- {target:.2f}")
    assert any("12 solutions to train on" in line for line in lines)


def test_solutions_of_similar_length_are_in_one_batch_and_epochs_differ() -> None:
    sampler = LengthGroupedSampler([10 + i % 8 for i in range(64)], 8, 0)
    order = list(sampler)
    assert sorted(order) == list(range(64))
    for start in range(0, 64, 8):
        assert len({i % 8 for i in order[start : start + 8]}) == 1
    sampler.set_epoch(1)
    assert list(sampler) != order
