"""Prefixes that share tokens get the scores of full passes, step by step and as one tree."""

from __future__ import annotations

import gc
import random
import weakref
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    FalconConfig,
    GPT2Config,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from mclabel.core.errors import DataError
from mclabel.domains.arith import bundled_model
from mclabel.engines.text import PolicyText
from mclabel.prm.examples.batch import (
    MAX_NODES,
    _group_into_batches,
    make_batch,
    make_tree,
    split_into_tree_groups,
)
from mclabel.prm.examples.encode import EncodedSolution, StepEncoder, TooLongError
from mclabel.prm.model.cached import CachedBody
from mclabel.prm.model.heads import NUM_FEATURES
from mclabel.prm.model.network import start_step_model
from mclabel.prm.model.settings import ModelSettings
from mclabel.prm.scoring.incremental import (
    IncrementalPRM,
    ScoredPrefix,
    supports_incremental_scoring,
)
from mclabel.prm.scoring.manifest import PrmManifest
from mclabel.prm.scoring.score import PRM
from tests.support.labelled import arith_rows, arith_text, tiny_model

PROBLEMS = ["How many?", "Ann has 3 apples and buys 4. How many apples has she now?"]
ROWS = arith_rows(12, per_problem=4, seed=1)
STEP_TOKEN = "<|step|>"
LINES = ["One of them.\n", "Two of them are 2 = 1 + 1.\n", "Then there are 3.\n", "Four.\n"]
HEADS: dict[str, dict[str, Any]] = {
    "token": {"head": "token"},
    "likelihood": {"head": "likelihood", "states": False},
    "likelihood and states": {"head": "likelihood", "states": True},
}


@pytest.fixture(scope="module")
def text() -> PolicyText:
    return arith_text()


def make_prm(
    text: PolicyText,
    *,
    base: str | None = None,
    step_token: str | None = None,
    max_tokens: int = 1024,
    has_neutral: bool = False,
    threads: int = 1,
    **settings: Any,
) -> PRM:
    torch.manual_seed(0)
    settings = {"base": base or str(bundled_model("strong")), **settings}
    model = start_step_model(ModelSettings(**settings), has_neutral=has_neutral).eval()
    for parameter in model.body_and_head_parameters()[1]:
        if parameter.dim() == 2 and parameter.shape[0] <= 3:
            nn.init.normal_(parameter, std=0.3 if parameter.shape[1] == NUM_FEATURES else 0.05)
    step_id = None if step_token is None else text.token_id(step_token)
    assert step_token is None or step_id is not None
    manifest = PrmManifest(
        kind="prm",
        head=settings["head"],
        step_token=step_token,
        template=None,
        system=None,
        max_tokens=max_tokens,
    )
    return PRM(
        model, StepEncoder(text, step_id=step_id, max_tokens=max_tokens), manifest, threads=threads
    )


def grow_tree(prm: IncrementalPRM, rng: random.Random, *, rounds: int) -> list[ScoredPrefix]:
    """Return all prefixes of a random tree over several problems."""
    of = {prm.begin(row.problem.text): row.problem.id for row in ROWS}
    for _ in range(rounds):
        extensions = []
        for prefix in rng.choices(list(of), k=12):
            row = rng.choice([row for row in ROWS if row.problem.id == of[prefix]])
            ends = [0, *(step.end for step in row.solution.steps)]
            first = len(prefix.scores) % len(row.solution.steps)
            steps = [
                row.solution.ids[ends[i] : ends[i + 1]]
                for i in range(first, min(first + rng.randint(1, 3), len(row.solution.steps)))
            ]
            extensions.append((prefix, steps))
        for (prefix, steps), extended in zip(extensions, prm.extend(extensions), strict=True):
            assert isinstance(extended, ScoredPrefix) and extended.parent is prefix
            assert len(extended.scores) == len(prefix.scores) + len(steps)
            assert extended.scores[: len(prefix.scores)] == prefix.scores
            of[extended] = of[prefix]
    return list(of)


def encode_prefix(node: ScoredPrefix) -> EncodedSolution:
    return EncodedSolution(
        ids=tuple(token for part in node._list_ancestors_and_self() for token in part._ids),
        num_prompt=node._list_ancestors_and_self()[0].num_tokens,
        positions=node.positions,
    )


def assert_as_full(prm: PRM, nodes: list[ScoredPrefix], tolerance: float = 1e-5) -> None:
    grown = [node for node in nodes if node.scores]
    full = prm.score_encoded(list(map(encode_prefix, grown)))
    for node, scores in zip(grown, full, strict=True):
        assert node.scores == pytest.approx(scores, abs=tolerance)
        assert node.num_tokens == len(encode_prefix(node).ids)
    # otherwise any model would pass
    assert torch.tensor([score for scores in full for score in scores]).std() > 1e-3


@pytest.mark.parametrize("step_token", [None, STEP_TOKEN])
@pytest.mark.parametrize("head", HEADS)
def test_a_tree_scores_as_full_passes_do(
    text: PolicyText, head: str, step_token: str | None
) -> None:
    prm = make_prm(text, step_token=step_token, threads=2, **HEADS[head])
    assert supports_incremental_scoring(prm)
    nodes = grow_tree(IncrementalPRM(prm), random.Random(1), rounds=4)
    assert max(len(node.scores) for node in nodes) > 5
    assert_as_full(prm, nodes)


def test_with_little_memory_a_tree_scores_the_same(text: PolicyText) -> None:
    """Dropped states are computed again for a continuation, whose requester they are charged to."""
    prm = make_prm(text, **HEADS["likelihood and states"])
    loose = IncrementalPRM(prm)
    [extended] = loose.extend([(loose.begin(ROWS[0].problem.text), [ROWS[0].solution.ids[:4]])])
    assert isinstance(extended, ScoredPrefix)
    sizes = {}
    for share in (inf, 20, 1, 0):
        tight = IncrementalPRM(prm, max_bytes=share * extended._required_state.num_bytes)
        nodes = grow_tree(tight, random.Random(1), rounds=4)
        assert_as_full(prm, nodes)
        assert (
            sum(node._required_state.num_bytes for node in nodes if node._computed is not None)
            <= share * extended._required_state.num_bytes
        )
        sizes[share] = tight.num_computed
        before = tight.num_computed, tight.num_cached
        leaf = max(nodes, key=lambda node: len(node.scores))
        step = ROWS[0].solution.ids[:3]
        [longer, again] = tight.extend([(leaf, [step]), (leaf, [step])])
        assert isinstance(longer, ScoredPrefix) and longer is again
        computed = tight.num_computed - before[0]
        assert tight.last_computed == [computed, 0]
        assert computed + tight.num_cached - before[1] == longer.num_tokens
        if share == 0:
            assert computed == longer.num_tokens
    assert sizes[inf] < sizes[20] < sizes[1] <= sizes[0]


def test_three_classes_and_a_model_of_random_weights(text: PolicyText, tmp_path: Path) -> None:
    prm = make_prm(text, base=tiny_model(tmp_path), has_neutral=True, head="token")
    assert_as_full(prm, grow_tree(IncrementalPRM(prm), random.Random(2), rounds=3))


def test_ids_and_scores_are_those_of_the_text(text: PolicyText) -> None:
    prm = make_prm(text, **HEADS["likelihood"])
    incremental = IncrementalPRM(prm)
    problem, steps = PROBLEMS[1], LINES[:3]
    ids = [text.encode(step) for step in steps]
    assert incremental.decodes_to_same_text(ids[0], steps[0])
    assert not incremental.decodes_to_same_text(ids[0], steps[1])
    root = incremental.begin(problem)
    assert root.scores == () and root.num_tokens == len(text.prompt_ids(problem))
    [longer] = incremental.extend([(root, ids)])
    assert isinstance(longer, ScoredPrefix)
    assert encode_prefix(longer) == prm.encode(problem, steps)
    assert longer.scores == pytest.approx(prm.score([problem], [steps])[0], abs=1e-5)


def test_every_token_is_computed_once(text: PolicyText) -> None:
    prm = IncrementalPRM(make_prm(text, **HEADS["likelihood"]))
    first, second = (text.encode(line) for line in LINES[:2])
    root = prm.begin(PROBLEMS[0])
    assert prm.begin(PROBLEMS[0]) is root
    assert (prm.num_computed, prm.num_cached) == (0, 0)
    first_node, same_node, longer_node = prm.extend(
        [(root, [first]), (root, [first]), (root, [first, second])]
    )
    assert first_node is same_node and first_node is not longer_node
    prompt, both = root.num_tokens, len(first) + len(second)
    assert prm.num_computed == prompt + len(first) + both
    assert prm.num_cached == prompt  # the two solutions share the prompt
    assert isinstance(first_node, ScoredPrefix)
    before = prm.num_computed, prm.num_cached
    prm.extend([(first_node, [second])])
    assert prm.num_computed - before[0] == len(second)
    assert prm.num_cached - before[1] == first_node.num_tokens
    assert prm.extend([]) == []


def test_one_step_is_not_two_of_the_same_tokens(text: PolicyText) -> None:
    prm = make_prm(text, **HEADS["likelihood"])
    incremental = IncrementalPRM(prm)
    row = ROWS[0]
    cut = row.solution.steps[0].end
    first, second = row.solution.ids[:cut], row.solution.ids[cut:]
    root = incremental.begin(row.problem.text)
    joined, apart = incremental.extend([(root, [first + second]), (root, [first, second])])
    assert isinstance(joined, ScoredPrefix) and isinstance(apart, ScoredPrefix)
    assert len(joined.scores) == 1 and len(apart.scores) == 2
    assert joined.scores[0] != apart.scores[1]
    assert_as_full(prm, [joined, apart])


def test_what_the_encoder_refuses_is_refused_alone(text: PolicyText) -> None:
    room = len(text.prompt_ids(PROBLEMS[0])) + len(text.encode(LINES[1])) + 1
    prm = make_prm(text, head="token", step_token=STEP_TOKEN, max_tokens=room)
    incremental, root_ids = IncrementalPRM(prm), text.encode(LINES[1])
    mark = text.token_id(STEP_TOKEN) or 0
    root = incremental.begin(PROBLEMS[0])
    fits, long, marked, empty, none, prompt = incremental.extend(
        [
            (root, [root_ids]),
            (root, [root_ids, root_ids[:1]]),
            (root, [[*root_ids[:-2], mark]]),
            (root, [root_ids[:3], []]),
            (root, []),
            (incremental.begin(PROBLEMS[1] * 20), [root_ids]),
        ]
    )
    assert isinstance(fits, ScoredPrefix) and fits.num_tokens == room
    with pytest.raises(TooLongError) as full:
        prm.encode(PROBLEMS[0], [LINES[1], LINES[0][:1]])
    for refused, kind, message in (
        (long, TooLongError, f"more than max_tokens={room}"),
        (prompt, TooLongError, f"max_tokens={room}"),
        (full.value, TooLongError, f"max_tokens={room}"),
        (marked, DataError, "contains the step token"),
        (empty, DataError, "a step without tokens"),
        (none, DataError, "no steps"),
    ):
        assert isinstance(refused, kind) and message in str(refused)
    assert incremental.num_computed == room
    [later] = incremental.extend([(fits, [root_ids[:1]])])
    assert isinstance(later, TooLongError)


def test_what_is_dropped_is_freed_at_once(text: PolicyText) -> None:
    prm = IncrementalPRM(
        make_prm(text, step_token=STEP_TOKEN, threads=2, **HEADS["likelihood and states"])
    )
    gc.collect()
    gc.disable()  # states that only the cycle collector frees would accumulate
    try:
        nodes = grow_tree(prm, random.Random(3), rounds=2)
        prm.extend([(nodes[-1], [[text.token_id(STEP_TOKEN) or 0]])])
        tensors = [
            weakref.ref(node._required_state.cache) for node in nodes if node._computed is not None
        ]
        problem = weakref.ref(nodes[0])
        leaf = nodes[-1]
        path = len(leaf._list_ancestors_and_self())
        assert len(tensors) > path > 1
        del nodes
        assert sum(ref() is not None for ref in tensors) == path
        del leaf
        assert all(ref() is None for ref in tensors) and problem() is None
    finally:
        gc.enable()
    assert prm.begin(ROWS[0].problem.text)._computed is None


SMALL = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
FALCON = {"vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
WINDOWS = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}


@pytest.mark.parametrize(
    ("config", "takes"),
    [
        (LlamaConfig(**SMALL), True),
        (LlamaConfig(**SMALL, rope_parameters=DYNAMIC), False),
        (Qwen2Config(**SMALL), True),
        (Qwen3Config(**SMALL), True),
        (GPT2Config(n_layer=2, n_head=2, n_embd=16), True),
        (MistralConfig(**SMALL, sliding_window=4), False),
        (Qwen3Config(**SMALL, **WINDOWS), False),
        (BertConfig(**SMALL), False),
        (FalconConfig(**FALCON), True),
        (FalconConfig(**FALCON, alibi=True), False),
        (MambaConfig(vocab_size=96, hidden_size=16, num_hidden_layers=1, state_size=4), False),
    ],
)
def test_which_architectures_are_computed_from_a_cache(
    config: PreTrainedConfig, takes: bool
) -> None:
    torch.manual_seed(0)
    assert (
        CachedBody.from_network(AutoModelForCausalLM.from_config(config).eval()) is not None
    ) is takes


def test_what_cannot_be_computed_so_is_refused(text: PolicyText) -> None:
    prm = make_prm(text, **HEADS["token"])
    prm.model.network.set_attn_implementation("eager")
    assert not supports_incremental_scoring(prm)


def make_solution(*ids: int) -> EncodedSolution:
    return EncodedSolution(ids=ids, num_prompt=1, positions=(len(ids) - 1,))


def test_a_tree_by_hand() -> None:
    tree = make_tree(
        [make_solution(1, 2), make_solution(1, 2, 3), make_solution(1, 4), make_solution(5)]
    )
    assert tree.token_ids.tolist() == [1, 2, 3, 4, 5]
    assert tree.token_positions.tolist() == [0, 1, 2, 1, 0]
    assert tree.node_indices.tolist() == [[0, 1, 0], [0, 1, 2], [0, 3, 0], [4, 0, 0]]
    assert [row.nonzero()[:, 0].tolist() for row in tree.attention_mask] == [
        [0], [0, 1], [0, 1, 2], [0, 3], [4],
    ]  # fmt: skip


def test_trees_are_bounded_and_used_only_where_they_save() -> None:
    alike = [make_solution(*range(100), 1000 + i) for i in range(600)]
    groups = list(split_into_tree_groups(alike))
    assert [encoded for group, _ in groups for encoded in group] == alike
    assert all(tree and 100 + len(group) <= MAX_NODES for group, tree in groups)
    assert not any(
        tree
        for _, tree in split_into_tree_groups(
            [make_solution(*range(i, i + 50)) for i in range(0, 1000, 50)]
        )
    )
    assert list(split_into_tree_groups([make_solution(*range(2000))])) == [
        ([make_solution(*range(2000))], False)
    ]


@pytest.mark.parametrize("head", ["token", "likelihood"])
def test_solutions_that_begin_alike_score_as_they_do_alone(head: str) -> None:
    torch.manual_seed(0)
    rng = random.Random(0)
    solutions = ["".join(rng.choice(LINES) for _ in range(rng.randrange(1, 9))) for _ in range(60)]
    problems = [rng.choice(["How many?", "How many are there in all?"]) for _ in solutions]
    model = start_step_model(ModelSettings(base=str(bundled_model("strong")), head=head)).eval()
    nn.init.normal_(model.body_and_head_parameters()[1][0], std=0.1)
    encoder = StepEncoder(arith_text(), step_id=None, max_tokens=1024)
    distinct = sorted(
        set([encoder.encode_text(p, s) for p, s in zip(problems, solutions, strict=True)]),
        key=lambda encoded: encoded.ids,
    )
    groups = _group_into_batches(distinct, trees=True)
    assert sum(tree for _, tree in groups) > 1
    assert sorted(encoded.ids for group, _ in groups for encoded in group) == [
        e.ids for e in distinct
    ]
    with torch.inference_mode():
        for group, tree in groups:
            if tree:
                together = model(make_batch(group, as_tree=True))
                alone = model(make_batch(group))
                assert torch.allclose(together, alone, atol=2e-4)
                assert alone.std() > 0.01
