from __future__ import annotations

import itertools

from mclabel.core.seeds import content_id, prefix_id, sampling_seed


def test_ids_do_not_depend_on_key_order_but_on_content() -> None:
    assert content_id({"a": 1, "b": 2}) == content_id({"b": 2, "a": 1})
    assert content_id("ab", "c") != content_id("a", "bc")
    assert prefix_id("p", (1, 23)) != prefix_id("p", (12, 3))


def test_seeds_of_neighbours_are_unrelated_and_fit_a_signed_64_bit_integer() -> None:
    seeds = [sampling_seed(0, "p", "x", i) for i in range(1000)]
    assert len(set(seeds)) == 1000
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert 1 not in {b - a for a, b in itertools.pairwise(seeds)}
