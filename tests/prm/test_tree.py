"""Solutions computed as one tree of tokens."""

from __future__ import annotations

import random

import pytest
import torch
from torch import nn

from mclabel.domains.arith import bundled_model
from mclabel.prm.examples.batch import MAX_NODES, _batches, make_batch, make_tree, tree_groups
from mclabel.prm.examples.encode import EncodedSolution, StepEncoder
from mclabel.prm.model.network import start_step_model
from mclabel.prm.model.settings import ModelSettings
from tests.support.labelled import arith_text


def solution(*ids: int) -> EncodedSolution:
    return EncodedSolution(ids=ids, num_prompt=1, positions=(len(ids) - 1,))


def test_a_tree_by_hand() -> None:
    tree = make_tree([solution(1, 2), solution(1, 2, 3), solution(1, 4), solution(5)])
    assert tree.ids.tolist() == [1, 2, 3, 4, 5]
    assert tree.depth.tolist() == [0, 1, 2, 1, 0]
    assert tree.nodes.tolist() == [[0, 1, 0], [0, 1, 2], [0, 3, 0], [4, 0, 0]]
    assert [row.nonzero()[:, 0].tolist() for row in tree.sees] == [
        [0], [0, 1], [0, 1, 2], [0, 3], [4],
    ]  # fmt: skip


def test_trees_are_bounded_and_used_only_where_they_save() -> None:
    alike = [solution(*range(100), 1000 + i) for i in range(600)]
    groups = list(tree_groups(alike))
    assert [one for group, _ in groups for one in group] == alike
    assert all(tree and 100 + len(group) <= MAX_NODES for group, tree in groups)
    different = [solution(*range(i, i + 50)) for i in range(0, 1000, 50)]
    assert not any(tree for _, tree in tree_groups(different))
    assert list(tree_groups([solution(*range(2000))])) == [([solution(*range(2000))], False)]


@pytest.mark.parametrize("head", ["token", "likelihood"])
def test_solutions_that_begin_alike_score_as_they_do_alone(head: str) -> None:
    torch.manual_seed(0)
    rng = random.Random(0)
    lines = ["One of them.\n", "Two of them are 2 = 1 + 1.\n", "Then there are 3.\n", "Four.\n"]
    solutions = ["".join(rng.choice(lines) for _ in range(rng.randrange(1, 9))) for _ in range(60)]
    problems = [rng.choice(["How many?", "How many are there in all?"]) for _ in solutions]
    model = start_step_model(ModelSettings(base=str(bundled_model("strong")), head=head)).eval()
    nn.init.normal_(model.parts()[1][0], std=0.1)
    encoder = StepEncoder(arith_text(), step_id=None, max_tokens=1024)
    encoded = [encoder.text(p, s) for p, s in zip(problems, solutions, strict=True)]
    distinct = sorted(set(encoded), key=lambda one: one.ids)
    groups = _batches(distinct, trees=True)
    assert sum(tree for _, tree in groups) > 1
    assert sorted(one.ids for group, _ in groups for one in group) == [e.ids for e in distinct]
    with torch.inference_mode():
        for group, tree in groups:
            if tree:
                together = model(make_batch(group, as_tree=True))
                alone = model(make_batch(group))
                assert torch.allclose(together, alone, atol=2e-4)
                assert alone.std() > 0.01
