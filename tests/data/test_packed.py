"""A set of names in little memory is a set of names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mclabel.run.shards import plan
from mclabel.run.shards.plan import PackedNames

NAMES = st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1))


@given(NAMES, NAMES)
def test_it_holds_what_it_was_given_once_and_in_order(names: list[str], others: list[str]) -> None:
    found = PackedNames(names)
    assert list(found) == sorted(set(names)) and len(found) == len(set(names))
    for name in [*names, *others, "", "a" * 100]:
        assert (name in found) == (name in set(names))
    assert found & set(others) == set(names) & set(others)
    assert None not in found


def test_parts_of_different_widths_are_one_set() -> None:
    names = [f"{i:x}" * (1 + i // plan.PART) for i in range(2 * plan.PART + 5)]
    found = PackedNames(iter(names))
    assert set(found) == set(names) and all(name in found for name in names[:: plan.PART // 7])
