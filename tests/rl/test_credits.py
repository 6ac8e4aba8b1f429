"""Credits: figures computed by hand, and properties of any group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from mclabel.core.errors import ComponentError
from mclabel.core.settings import Chosen
from mclabel.rl.credits import CheckedCredit, Credit, CreditSettings, Segment, StepEvidence


def make_settings(kind: str, **keys: Any) -> CreditSettings:
    credit_settings = Chosen("credits", default="outcome").settings({"kind": kind, **keys})
    assert isinstance(credit_settings, CreditSettings)
    return credit_settings


def assign_credits(
    group: Sequence[StepEvidence], kind: str, **keys: Any
) -> list[list[tuple[int, Any]]]:
    """Return the ends and the approximate credits of each solution's segments."""
    return [
        [(segment.end, pytest.approx(segment.credit)) for segment in segments]
        for segments in CheckedCredit(make_settings(kind, **keys)).assign(group)
    ]


def make_evidence(num_steps: int, reward: float, **more: Any) -> StepEvidence:
    return StepEvidence(num_steps=num_steps, reward=reward, **more)


OUTCOMES = [make_evidence(3, 1), make_evidence(2, 0), make_evidence(0, 0), make_evidence(1, 1)]
THIRD = 2 / 3
ERRORS = [
    make_evidence(3, 1, first_error=1),
    make_evidence(4, 0, first_error=2),
    make_evidence(2, 0),
    make_evidence(1, 0),
]
LEAST = [
    make_evidence(3, 1, scores=(0.5, 0.75, 0.625)),
    make_evidence(2, 0, scores=(1, 0.25)),
    make_evidence(0, 0, scores=()),
]
"""Solutions with least scores .5, .25 and 0, and with outcome credits of 2/3 and -1/3."""
ABOVE, BELOW = 2 / 3 - 0.125, -1 / 3 - 0.25
OTHERS = {"leave_one_out": True}
BY_HAND: list[tuple[str, dict[str, Any], list[StepEvidence], list[list[tuple[int, float]]]]] = [
    ("outcome", {}, OUTCOMES, [[(3, 0.5)], [(2, -0.5)], [], [(1, 0.5)]]),
    ("outcome", OTHERS, OUTCOMES, [[(3, THIRD)], [(2, -THIRD)], [], [(1, THIRD)]]),
    ("outcome", {}, [make_evidence(2, 1)], [[(2, 0)]]),
    ("outcome", OTHERS, [make_evidence(2, 1)], [[(2, 0)]]),
    ("first_error", {}, ERRORS, [[(3, 0.75)], [(2, 0), (4, -0.25)], [(2, -0.25)], [(1, -0.25)]]),
    ("first_error", {}, [make_evidence(2, 0, first_error=0), make_evidence(2, 1)],
     [[(2, -0.5)], [(2, 0.5)]]),
    ("prm_min", {}, LEAST, [
        [(1, 0.5 + ABOVE), (2, 0.625 + ABOVE), (3, 0.625 + ABOVE)],
        [(1, 0.25 + BELOW), (2, 0.25 + BELOW)], [],
    ]),
    ("prm_min", {"process_weight": 2}, LEAST[:2], [
        [(1, 1), (2, 1.25), (3, 1.25)], [(1, -1), (2, -1)],
    ]),
    ("prm_min", {}, LEAST[:1], [[(1, 0), (2, 0), (3, 0)]]),
]  # fmt: skip
"""A credit, its settings and a group. The expected ends and credits of each solution's segments
follow."""


@pytest.mark.parametrize(("kind", "keys", "group", "expected"), BY_HAND)
def test_credits_by_hand(
    kind: str,
    keys: dict[str, Any],
    group: list[StepEvidence],
    expected: list[list[tuple[int, float]]],
) -> None:
    assert assign_credits(group, kind, **keys) == expected


class OwnCredit(Credit):
    """A credit that returns the values in its settings."""

    class Settings(CreditSettings):
        """The returned credits."""

        returned: str

    def assign(self, group: Sequence[StepEvidence]) -> Any:
        return eval(self.settings.returned, {"Segment": Segment})


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("[()]", r"increasing ends .* number of steps, 3"),
        ("[(Segment(end=2, credit=0),)]", r"end at \[2\]"),
        ("[(Segment(end=3, credit=0), Segment(end=3, credit=0))]", r"end at \[3, 3\]"),
        ("[(Segment(end=0, credit=0), Segment(end=3, credit=0))]", r"end at \[0, 3\]"),
        ("[(Segment(end=3.0, credit=0),)]", r"end=3\.0 \(float\), must be a valid integer"),
        (
            "[(Segment(end=3, credit=float('nan')),)]",
            r"\[0\]\[0\]\.credit=nan \(float\), must be a finite number",
        ),
        ("[(Segment(end=3, credit='1'),)]", r"credit='1' \(str\), must be a valid number"),
        ("[(3, 0.5)]", r"\[0\]\[0\]=3 \(int\), must be an instance of Segment"),
        ("[]", "0 lists of segments for 1 solutions"),
        ("None", "gave None, must be a valid list"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_credit_of_ones_own_is_checked(returned: str, message: str) -> None:
    kind = f"{__name__}:OwnCredit"
    assert assign_credits(
        [make_evidence(3, 1)],
        kind,
        returned="[(Segment(end=1, credit=0.5), Segment(end=3, credit=-1))]",
    ) == [[(1, 0.5), (3, -1)]]
    with pytest.raises(ComponentError, match=message):
        assign_credits([make_evidence(3, 1)], kind, returned=returned)
