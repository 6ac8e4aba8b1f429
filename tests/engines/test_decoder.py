"""The decoder compared with transformers' plain forward pass, and continued with sampled ids."""

from __future__ import annotations

import asyncio
import copy
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from mclabel.core.errors import EngineError
from mclabel.domains.arith import bundled_model
from mclabel.domains.arith.problems import generate_problems
from mclabel.domains.arith.program import Program, write_reference_solution
from mclabel.engines import PolicySettings
from mclabel.engines.cascade import ATTENTION, LiveRollout
from mclabel.engines.chat import PromptParts
from mclabel.engines.decoder import WINDOW, LaneLimit, SharedPrefixDecoder, draw_uniform_numbers
from mclabel.engines.hf import HfEngine
from mclabel.engines.text import PolicyText
from tests.support.continuation import (
    NUM_SOLUTIONS,
    TEMPERATURE,
    Calls,
    chat_model,
    count_exact,
    label_all,
    num_other_tokens,
)

SHAPE = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, num_key_value_heads=4)),
    "llama-grouped": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, num_key_value_heads=2)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE, num_key_value_heads=1)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE, num_key_value_heads=2, head_dim=24)),
    "bundled": lambda: AutoModelForCausalLM.from_pretrained(
        bundled_model("policy"), dtype=torch.float32
    ),
}
NO_END = 10**6


def solution_ids(count: int) -> list[tuple[int, ...]]:
    """Return test problems with their reference solutions, as token ids of the bundled policy."""
    text = PolicyText.load(str(bundled_model("policy")), PromptParts())
    return [
        text.prompt_ids(p.text)
        + text.encode(write_reference_solution(Program.from_json(p.meta["program"])))
        for p in generate_problems(count, seed=4, split="test")
    ]


def make_decoder(model: PreTrainedModel, **changes: Any) -> SharedPrefixDecoder:
    model.set_attn_implementation(ATTENTION)
    arguments = {"end_ids": [NO_END], "temperature": 1.0, "max_live": 64, **changes}
    return SharedPrefixDecoder(model.eval(), **arguments)


def make_float64(model: PreTrainedModel) -> PreTrainedModel:
    """Return the model in float64, run by transformers.

    In float32, its logits of up to 40 have rounding errors of up to 2e-4, more than the tolerance.
    """
    twin = copy.deepcopy(model).double().eval()
    twin.set_attn_implementation("eager")
    return twin


def plain_logits(twin: PreTrainedModel, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return twin(torch.tensor([ids])).logits[0, -1]


def worst_logit_error(model: PreTrainedModel, contexts: list[tuple[int, ...]], end: int) -> float:
    """Return the largest logit difference to the plain forward pass over 60 rollouts."""
    twin = make_float64(model)
    rng = random.Random(0)
    engine = make_decoder(model, max_live=20, end_ids=[end], temperature=0.8)
    waiting = [
        LiveRollout(context=rng.choice(contexts), max_tokens=rng.randrange(3, 20), seed=i)
        for i in range(60)
    ]
    worst = 0.0
    while waiting or engine.num_live:
        while waiting and engine.admit(waiting[-1], [row.context for row in waiting]):
            waiting.pop()
        logits = list(zip(engine.lanes, engine.logits(), strict=True))
        for lane, ours in rng.sample(logits, min(3, len(logits))):
            row = lane.rows[-1]
            worst = max(
                worst, float((ours - plain_logits(twin, [*row.context, *row.sampled])).abs().max())
            )
        engine.step()
    return worst


@pytest.mark.parametrize("name", MODELS)
def test_logits_equal_the_plain_forward_pass(name: str) -> None:
    """The comparison uses float64, so rounding hides few errors; norms stay in float32."""
    torch.manual_seed(0)
    rng = random.Random(name)
    texts = [tuple(rng.randrange(90) for _ in range(50)) for _ in range(3)]
    texts.append(texts[0][:20] + texts[1][20:])  # shares its first tokens with another text
    contexts = [text[:cut] for text in texts for cut in rng.sample(range(1, 51), 20)]
    assert worst_logit_error(MODELS[name]().double(), contexts, NO_END) < (
        1e-4 if name == "bundled" else 1e-6
    )


def test_sampled_tokens_follow_the_model_s_distribution() -> None:
    model = MODELS["bundled"]()
    twin = make_float64(model)
    ids = solution_ids(1)[0]
    p_values = []
    for cut in (len(ids) - 30, len(ids) - 18, len(ids) - 7):
        temperature = 3.0  # so high that many tokens are likely
        probabilities = torch.softmax(plain_logits(twin, list(ids[:cut])) / temperature, -1)
        engine = make_decoder(model, temperature=temperature, max_live=500)
        counts = np.zeros(len(probabilities))
        for start in range(0, 6000, 500):
            for seed in range(start, start + 500):
                assert engine.admit(LiveRollout(context=ids[:cut], max_tokens=1, seed=seed * 7919))
            for row in engine.step():
                counts[row.sampled[0]] += 1
        expected = probabilities.double().numpy() * counts.sum()
        common = expected >= 10
        observed = np.append(counts[common], counts[~common].sum())
        wanted = np.append(expected[common], expected[~common].sum())
        p_values.append(chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue)
    assert min(p_values) > 1e-4


def test_a_narrow_step_computes_the_lowest_ranks_and_samples_the_same() -> None:
    torch.manual_seed(1)
    model = MODELS["llama"]()

    def sample(first_step: int | None) -> dict[int, list[int]]:
        engine = make_decoder(model, first_step=first_step)
        texts: dict[int, list[int]] = {}
        waiting = []
        for seed in range(6):  # of two problems: the later problem is requested first
            row = LiveRollout(context=tuple(range(seed // 3, 25)), max_tokens=12, seed=seed)
            row.priority_and_number = (1 - seed // 3, seed)
            waiting += [] if engine.admit(row) else [row]
        assert [row.seed for row in waiting] == ([2] if first_step else [])
        for _ in range(3):
            engine.step()
        assert engine.admit(
            LiveRollout(context=(40, 41), max_tokens=4, seed=6, priority_and_number=(-1, 6))
        )
        while engine.num_live or waiting:
            texts |= {row.seed: row.sampled for row in engine.step()}
            waiting = [row for row in waiting if not engine.admit(row)]
        return texts

    narrow, wide = sample(2), sample(None)
    assert narrow == wide
    ended = list(narrow)
    assert ended[0] == 6 and set(ended[1:4]) == {3, 4, 5}


def test_steps_widen_only_where_that_makes_sampling_faster() -> None:
    limit = LaneLimit(16)
    for num_tokens, num_lanes in ((100, 32), (200, 64), (210, 64), (400, 128)):
        for _ in range(WINDOW):
            limit.record_step(limit.num_lanes, num_tokens, 1.0)
        assert limit.num_lanes == num_lanes


def test_rollouts_share_a_lane_until_they_part_and_wait_where_there_is_none() -> None:
    torch.manual_seed(1)
    model = MODELS["llama"]()
    contexts = [tuple(range(5, 25))] * 13 + [tuple(range(i, 30)) for i in (1, 2, 3)]

    def sample(max_live: int, parked: list[int]) -> dict[int, list[int]]:
        engine = make_decoder(model, max_live=max_live)
        for seed, context in enumerate(contexts):
            assert engine.admit(LiveRollout(context=context, max_tokens=12, seed=seed))
        assert [len(lane.rows) for lane in engine.lanes] == [13, 1, 1, 1]
        texts: dict[int, list[int]] = {}
        while engine.num_live:
            texts |= {row.seed: row.sampled for row in engine.step()}
            parked.append(len(engine._parked))
            assert engine.num_live == len(contexts) - len(texts)
        return texts

    roomy: list[int] = []
    tight: list[int] = []  # 4 blocks of 8 lanes for 4 contexts: 5 of the 13 rows must wait
    assert sample(16, tight) == sample(64, roomy)
    assert max(tight) == 5 and max(roomy) == 0


def test_random_numbers_are_uniform_and_unrelated() -> None:
    rows = [
        LiveRollout(context=(1,), max_tokens=1, seed=s, sampled=[0] * p)
        for s in range(200)
        for p in range(50)
    ]
    numbers = draw_uniform_numbers(rows).reshape(200, 50)
    assert chisquare(np.histogram(numbers, 50, (0, 1))[0]).pvalue > 1e-3
    assert abs(np.corrcoef(numbers[:, 0], numbers[:, 1])[0, 1]) < 0.25
    assert abs(np.corrcoef(numbers[:-1, 0], numbers[1:, 0])[0, 1]) < 0.25


def test_end_token_budget_and_context_end_a_completion() -> None:
    torch.manual_seed(2)
    model = MODELS["llama"]()
    engine = make_decoder(model, end_ids=range(97), temperature=0)
    row = LiveRollout(context=(1, 2, 3), max_tokens=9, seed=0)
    engine.admit(row)
    assert engine.step() == [row]
    assert engine.ended_by_token(row)
    engine = make_decoder(model)
    long, short = (LiveRollout(context=(4,) * n, max_tokens=5, seed=0) for n in (126, 3))
    assert engine.admit(long) and engine.admit(short)
    assert [row for _ in range(6) for row in engine.step()] == [long, short]
    assert (len(long.sampled), len(short.sampled)) == (2, 5)
    assert not engine.ended_by_token(short)


def test_greedy_top_k_and_top_p_bound_the_choice() -> None:
    torch.manual_seed(3)
    model = MODELS["llama"]()
    context = tuple(range(30))
    best = plain_logits(make_float64(model), list(context)).argsort(descending=True).tolist()
    for changes, allowed in (
        ({"temperature": 0.0}, best[:1]),
        ({"top_k": 3}, best[:3]),
        ({"top_p": 1e-6}, best[:1]),
    ):
        engine = make_decoder(model, **changes)
        for seed in range(50):
            engine.admit(LiveRollout(context=context, max_tokens=1, seed=seed))
        assert {row.sampled[0] for row in engine.step()} <= set(allowed)


def test_memory_of_unused_prefixes_is_bounded() -> None:
    engine = make_decoder(MODELS["llama"](), prefix_cache_bytes=200_000)
    rng = random.Random(0)
    for seed in range(60):
        engine.admit(
            LiveRollout(
                context=tuple(rng.randrange(90) for _ in range(40)), max_tokens=2, seed=seed
            )
        )
        engine.step()
    assert engine._prefixes.num_bytes <= 500_000
    assert engine._pools.chunks.shape[2] <= 4 * engine.max_live


def test_attention_it_does_not_have_is_refused() -> None:
    model = MistralForCausalLM(MistralConfig(**SHAPE, num_key_value_heads=2, sliding_window=8))
    with pytest.raises(EngineError, match="MistralForCausalLM uses a kind of attention"):
        make_decoder(model)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Record the contexts and the sampled ids of the decoder."""
    recorded, step = Calls(), SharedPrefixDecoder.step

    def record_ended(decoder: SharedPrefixDecoder) -> list[LiveRollout]:
        ended = step(decoder)
        recorded.made += [(tuple(row.context), tuple(row.sampled)) for row in ended]
        return ended

    monkeypatch.setattr(SharedPrefixDecoder, "step", record_ended)
    return recorded


@pytest.mark.slow
def test_prefixes_are_continued_by_the_ids_that_were_sampled(calls: Calls, tmp_path: Path) -> None:
    policy = HfEngine(
        PolicySettings(
            model=chat_model(tmp_path), temperature=TEMPERATURE, max_tokens=96, engine="hf"
        )
    )
    results = asyncio.run(label_all(policy))
    assert count_exact(results, calls) > 2 * NUM_SOLUTIONS
    # so that tokenizing the text again would be noticed
    assert num_other_tokens(policy, results) > 1
