"""The `openai` engine on a real `vllm serve`: token ids, chat, refusals, continuation."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from mclabel.core.errors import EngineError
from mclabel.core.records import Completion
from mclabel.domains.arith.problems import generate_problems
from mclabel.engines import PolicySettings
from mclabel.engines.openai import OpenAIEngine
from tests.support.continuation import (
    NUM_SOLUTIONS,
    TEMPERATURE,
    Calls,
    count_exact,
    label_all,
    num_other_tokens,
)
from tests.support.needs_vllm import NEEDS_VLLM
from tests.vllm.test_search_vllm import search_all

pytestmark = NEEDS_VLLM


def make_engine(
    model: str, url: str, settings: Mapping[str, Any] | None = None, **sampling: Any
) -> OpenAIEngine:
    """Return an engine with these settings and the server's address and key."""
    engine_settings = {"endpoints": [url], "api_key_env": "LOCAL_KEY", **(settings or {})}
    values = {"temperature": 0.8, "max_tokens": 100, **sampling}
    servers = OpenAIEngine.Settings.model_validate(engine_settings)
    return OpenAIEngine(PolicySettings(model=model, engine=servers, **values))


def sample_completions(engine: OpenAIEngine, prefix: str = "", count: int = 4) -> list[Completion]:
    async def run() -> list[Completion]:
        await engine.start()
        try:
            prompt = engine.prompt_ids(generate_problems(1, seed=5, split="test")[0].text)
            begun = engine.encode(prefix)
            return await asyncio.gather(
                *(engine.sample(prompt, begun, seed=2**62 + seed) for seed in range(count))
            )
        finally:
            await engine.close()

    return asyncio.run(run())


def test_stop_texts_lengths_and_ids(model: str, url: str) -> None:
    engine = make_engine(model, url, stop=["\n"])
    lines = sample_completions(engine, count=20)
    assert all(c.text.count("\n") == 1 and c.text.endswith("\n") for c in lines)
    assert all(engine.decode(c.ids) == c.text for c in lines)
    cut = sample_completions(make_engine(model, url, max_tokens=3))
    assert {(c.finish_reason, len(c.ids)) for c in cut} == {("length", 3)}


def test_prefixes_are_continued_by_the_ids_that_were_sampled(
    model: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test compares the ids that the server received with those that it sampled."""
    calls, completion = Calls(), OpenAIEngine._build_completion

    def record_completion(
        engine: OpenAIEngine,
        answer: dict[str, Any],
        context: Any,
        room: int,
        stop: Sequence[str] = (),
    ) -> Completion:
        choice = answer["choices"][0]
        if len(context) != len(engine.prompt_ids("What is 1 + 1?")) or choice["token_ids"][1:]:
            calls.made.append((tuple(choice["prompt_token_ids"]), tuple(choice["token_ids"])))
        return completion(engine, answer, context, room, stop)

    engine = make_engine(model, url, temperature=TEMPERATURE, max_tokens=96)
    probe = asyncio.run(_probe_context(engine))
    monkeypatch.setattr(OpenAIEngine, "_build_completion", record_completion)
    results = asyncio.run(label_all(engine))
    calls.made = [call for call in calls.made if call[0] != probe]
    assert count_exact(results, calls) > 2 * NUM_SOLUTIONS
    assert num_other_tokens(engine, results) > NUM_SOLUTIONS / 50


async def _probe_context(engine: OpenAIEngine) -> tuple[int, ...]:
    from mclabel.engines.openai import PROBE_PREFIX
    from mclabel.engines.text import PROBE

    await engine.start()
    await engine.close()
    return engine.prompt_ids(PROBE) + engine.encode(PROBE_PREFIX)


def test_chat_continues_the_last_message_exactly_or_says_that_it_does_not(
    model: str, url: str
) -> None:
    engine = make_engine(model, url, {"api": "chat"})
    prefix = "6 + 1 = 7.\nSo"
    completions = sample_completions(engine, prefix)
    assert all(engine.decode(c.ids) == c.text for c in completions)
    prompt = engine.prompt_ids("1 + 1?")
    strange = tuple(engine.encode(letter)[0] for letter in "The baskets")
    assert engine.encode(engine.decode(strange)) != strange

    async def run() -> None:
        await engine.start()
        try:
            await engine.sample(prompt, strange, seed=0)
        finally:
            await engine.close()

    with pytest.raises(EngineError, match=r"Set policy\.engine\.api=completions"):
        asyncio.run(run())


@pytest.mark.parametrize(
    ("settings", "prompting", "message"),
    [
        ({"api_key_env": None}, {}, r"requires an API key\. Set policy\.engine\.api_key_env"),
        ({"model": "other"}, {}, r"policy\.engine\.model='other': .* serves policy"),
        ({"api": "chat"}, {"template": "{problem}"}, "needs a chat template"),
    ],
)
def test_what_a_user_may_get_wrong(
    model: str, url: str, settings: dict[str, Any], prompting: dict[str, Any], message: str
) -> None:
    with pytest.raises(EngineError, match=message):
        sample_completions(make_engine(model, url, settings, **prompting))


def test_a_wrong_key_is_refused_and_not_shown(
    model: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_KEY", "sk-wrong-42")
    with pytest.raises(EngineError, match="rejects the key in LOCAL_KEY") as caught:
        sample_completions(make_engine(model, url))
    assert "sk-wrong-42" not in str(caught.value)


def test_searches_keep_an_exact_ledger(model: str, url: str) -> None:
    """The client does not see end tokens, so its counter lacks them, but the ledger has them."""
    engine = make_engine(model, url, max_tokens=160, max_model_len=512)
    asyncio.run(search_all(engine, counts_end_tokens=False))
