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


def policy(
    model: str, url: str, settings: Mapping[str, Any] | None = None, **sampling: Any
) -> OpenAIEngine:
    """Return an engine with these settings and the server's address and key."""
    own = {"endpoints": [url], "api_key_env": "LOCAL_KEY", **(settings or {})}
    values = {"temperature": 0.8, "max_tokens": 100, **sampling}
    servers = OpenAIEngine.Settings.model_validate(own)
    return OpenAIEngine(PolicySettings(model=model, engine=servers, **values))


def sample(one: OpenAIEngine, prefix: str = "", count: int = 4) -> list[Completion]:
    async def run() -> list[Completion]:
        await one.start()
        try:
            prompt = one.prompt_ids(generate_problems(1, seed=5, split="test")[0].text)
            begun = one.encode(prefix)
            return await asyncio.gather(
                *(one.sample(prompt, begun, seed=2**62 + seed) for seed in range(count))
            )
        finally:
            await one.close()

    return asyncio.run(run())


def test_stop_texts_lengths_and_ids(model: str, url: str) -> None:
    one = policy(model, url, stop=["\n"])
    lines = sample(one, count=20)
    assert all(c.text.count("\n") == 1 and c.text.endswith("\n") for c in lines)
    assert all(one.decode(c.ids) == c.text for c in lines)
    cut = sample(policy(model, url, max_tokens=3))
    assert {(c.finish_reason, len(c.ids)) for c in cut} == {("length", 3)}


def test_prefixes_are_continued_by_the_ids_that_were_sampled(
    model: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test compares the ids that the server received with those that it sampled."""
    calls, completion = Calls(), OpenAIEngine._build_completion

    def recording(
        one: OpenAIEngine,
        answer: dict[str, Any],
        context: Any,
        room: int,
        stop: Sequence[str] = (),
    ) -> Completion:
        choice = answer["choices"][0]
        if len(context) != len(one.prompt_ids("What is 1 + 1?")) or choice["token_ids"][1:]:
            calls.made.append((tuple(choice["prompt_token_ids"]), tuple(choice["token_ids"])))
        return completion(one, answer, context, room, stop)

    one = policy(model, url, temperature=TEMPERATURE, max_tokens=96)
    probe = asyncio.run(_probe_context(one))
    monkeypatch.setattr(OpenAIEngine, "_build_completion", recording)
    results = asyncio.run(label_all(one))
    calls.made = [call for call in calls.made if call[0] != probe]
    assert count_exact(results, calls) > 2 * NUM_SOLUTIONS
    assert num_other_tokens(one, results) > NUM_SOLUTIONS / 50


async def _probe_context(one: OpenAIEngine) -> tuple[int, ...]:
    from mclabel.engines.openai import PROBE_PREFIX
    from mclabel.engines.text import PROBE

    await one.start()
    await one.close()
    return one.prompt_ids(PROBE) + one.encode(PROBE_PREFIX)


def test_chat_continues_the_last_message_exactly_or_says_that_it_does_not(
    model: str, url: str
) -> None:
    one = policy(model, url, {"api": "chat"})
    prefix = "6 + 1 = 7.\nSo"
    completions = sample(one, prefix)
    assert all(one.decode(c.ids) == c.text for c in completions)
    prompt = one.prompt_ids("1 + 1?")
    strange = tuple(one.encode(letter)[0] for letter in "The baskets")
    assert one.encode(one.decode(strange)) != strange

    async def run() -> None:
        await one.start()
        try:
            await one.sample(prompt, strange, seed=0)
        finally:
            await one.close()

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
        sample(policy(model, url, settings, **prompting))


def test_a_wrong_key_is_refused_and_not_shown(
    model: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_KEY", "sk-wrong-42")
    with pytest.raises(EngineError, match="refuses the key in LOCAL_KEY") as caught:
        sample(policy(model, url))
    assert "sk-wrong-42" not in str(caught.value)


def test_searches_keep_an_exact_ledger(model: str, url: str) -> None:
    """The client does not see end tokens, so its counter lacks them, but the ledger has them."""
    one = policy(model, url, max_tokens=160, max_model_len=512)
    asyncio.run(search_all(one, counts_end_tokens=False))
