"""What a component gave is looked at by its declared type, and told by its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from mclabel.core.boundary import misfit
from mclabel.judge.base import Opinion
from mclabel.labeling.estimators.base import Judgement
from mclabel.labeling.estimators.paths import Probe


@pytest.mark.parametrize(
    ("found", "must", "fault"),
    [
        (range(3), Sequence[int | Probe], None),
        ([1, Probe(0, 1)], Sequence[int | Probe], None),
        ([1, Probe(0, True)], Sequence[int | Probe], "[1].completer=True (bool), must be a valid"),
        (Opinion(is_known=True, scores=[1, 0.5]), Opinion, None),  # type: ignore[arg-type]
        (Opinion(is_known=True, votes=(-2,)), Opinion, "votes[0]=-2 (int), must be greater than"),
        ([None], list[Judgement], "[0]=None, must be an instance of Judgement"),
        ({"a": 1}, Mapping[str, float], None),
        (True, float, "True (bool), must be a valid number"),
        (float("nan"), float, None),
    ],
)
def test_a_value_is_told_by_its_place(found: object, must: Any, fault: str | None) -> None:
    told = misfit(found, must)
    assert told is None if fault is None else (told or "").startswith(fault)
