"""Positions, step texts and labels agree for every tokenizer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mclabel.core.errors import DataError
from mclabel.core.records import Outcome
from mclabel.prm.examples.build import ExampleSettings, is_held_out, make_examples
from mclabel.prm.examples.encode import EncodedSolution, StepEncoder
from mclabel.prm.examples.targets import compute_step_targets
from tests.support.labelled import arith_rows, arith_text

TEXT = arith_text()
STEP_ID = TEXT.token_id("<|step|>")


def decode_steps(encoded: EncodedSolution, step_id: int | None) -> list[str]:
    """Return the texts of the steps between an encoding's positions."""
    texts, start = [], encoded.num_prompt
    for position in encoded.positions:
        end = position + 1
        ids = encoded.ids[start : end if step_id is None else end - 1]
        if step_id is not None:
            assert encoded.ids[position] == step_id
        texts.append(TEXT.decode(ids))
        start = end
    assert start == len(encoded.ids)
    return texts


@pytest.mark.parametrize("step_id", [None, STEP_ID])
def test_a_hundred_solutions_decode_to_their_steps(step_id: int | None) -> None:
    encoder = StepEncoder(TEXT, step_id=step_id, max_tokens=1024)
    for row in arith_rows(100):
        encoded = encoder.encode_labelled(row)
        assert decode_steps(encoded, step_id) == [step.text for step in row.solution.steps]
        assert len(compute_step_targets(row, "hard")) == len(encoded.positions)
        assert encoded.ids[: encoded.num_prompt] == TEXT.prompt_ids(row.problem.text)
        assert encoded == encoder.encode_text(row.problem.text, row.solution.text)
        assert encoded == encoder.encode_text(
            row.problem.text, [step.text for step in row.solution.steps]
        )


def test_ids_of_another_tokenizer_are_not_used() -> None:
    encoder = StepEncoder(TEXT, step_id=STEP_ID, max_tokens=1024)
    row = arith_rows(1)[0]
    foreign = tuple(map(ord, row.solution.text))
    steps, start = [], 0
    for step in row.solution.steps:
        start += len(step.text)
        steps.append(replace(step, end=start))
    assert encoder.encode_labelled(
        replace(row, solution=replace(row.solution, ids=foreign, steps=tuple(steps)))
    ) == encoder.encode_labelled(row)


def test_what_cannot_be_encoded_is_refused() -> None:
    encoder = StepEncoder(TEXT, step_id=STEP_ID, max_tokens=40)
    with pytest.raises(DataError, match="more than max_tokens=40"):
        encoder.encode_text("Ada has 3 apples.", "She has 3 apples.\n" * 20)
    with pytest.raises(DataError, match="no steps"):
        encoder.encode_text("Ada has 3 apples.", "")
    # the step token inside a text is encoded as text, not as the reserved token
    assert STEP_ID not in encoder.encode_text("Ada", "a <|step|> b").ids[:-1]
    row = arith_rows(1)[0]
    assert STEP_ID is not None
    forged = replace(row.solution, ids=(STEP_ID,), text="<|step|>")
    forged = replace(forged, steps=(replace(row.solution.steps[0], text="<|step|>", end=1),))
    with pytest.raises(DataError, match="the step token, which is reserved"):
        encoder.encode_labelled(replace(row, solution=forged))


def test_examples_are_split_by_problem_and_counted() -> None:
    encoder = StepEncoder(TEXT, step_id=None, max_tokens=1024)
    rows = arith_rows(200, per_problem=4)
    unlabeled = [
        replace(r, solution=replace(r.solution, outcome=Outcome.UNGRADED)) for r in rows[:3]
    ]
    examples = make_examples(
        [*rows[3:], *unlabeled], encoder, ExampleSettings(target="outcome", validation=0.3)
    )
    train, held = ({e.problem_id for e in part} for part in (examples.train, examples.validation))
    assert not train & held
    assert train and held
    assert examples.num_unlabeled == 3
    assert len(examples.train) + len(examples.validation) == 197
    assert is_held_out("Ada  has\n3", 0.5) == is_held_out("ada has 3", 0.5)
