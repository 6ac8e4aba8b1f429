"""The `hosted` engine itself; tests/judge/test_critic_hosted.py tests critics that use it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mclabel.core.errors import ConfigError, EngineError
from mclabel.core.records import Completion
from mclabel.engines import Engine, PolicySettings, make_engine
from mclabel.engines.hosted import HostedEngine
from mclabel.engines.openai_response import parse_server_completion
from tests.support.hosted_server import KEY, MODEL, NUM_THOUGHTS, HostedServer


class Whole(Engine):
    """A user's own engine, which returns an empty answer of nine counted tokens."""

    continues = False

    def prompt_ids(self, problem: str) -> tuple[int, ...]:
        return ()

    encode = prompt_ids

    def decode(self, ids: Any) -> str:
        return ""

    async def sample(self, prompt: Any, prefix: Any, **how: Any) -> Completion:
        return Completion(ids=(), text="", finish_reason="stop", num_counted=9)


def make_settings(server: HostedServer, **policy: Any) -> PolicySettings:
    engine = {"kind": "hosted", "model": MODEL, "endpoints": [server.url], "retry_s": 5.0}
    engine |= {"api_key_env": "HOSTED_KEY", "per_request_seeds": True}
    return PolicySettings.model_validate({"engine": engine, **policy})


def test_messages_go_out_and_the_service_counts_the_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOSTED_KEY", KEY)

    async def run(server: HostedServer) -> Completion:
        policy = make_settings(
            server, few_shot=[{"problem": "1 + 2?", "solution": "3"}], stop=["END"], temperature=0.5
        )
        engine = HostedEngine(policy)
        await engine.start()
        try:
            prompt = engine.prompt_ids("2 + ½?")
            assert engine.decode(prompt) == "2 + ½?"
            for prefix, stop in (((65,), ()), ((), ("x",))):
                with pytest.raises(EngineError, match="cannot continue a solution from a prefix"):
                    await engine.sample(prompt, prefix, seed=0, stop=stop)
            before = engine.stats()
            completion = await engine.sample(prompt, (), seed=7, max_tokens=60)
            after = engine.stats()
        finally:
            await engine.close()
        assert after.num_sampled_tokens - before.num_sampled_tokens == completion.num_tokens
        # one prompt token is cached
        assert after.num_prefill_tokens - before.num_prefill_tokens == 7 - 1
        assert (before.num_cached_tokens, after.num_cached_tokens) == (1, 2)
        return completion

    with HostedServer(lambda prompt: "It is 2½ .") as server:
        completion = asyncio.run(run(server))
        body = server.bodies[-1]
    assert (completion.text, completion.num_tokens) == ("It is 2½ .", NUM_THOUGHTS + 4)
    assert [message["content"] for message in body.pop("messages")] == ["1 + 2?", "3", "2 + ½?"]
    assert body == {
        **{"model": MODEL, "max_completion_tokens": 60, "temperature": 0.5, "top_p": 1.0},
        **{"stop": ["END"], "seed": 7},
    }


def test_an_engine_of_ones_own_that_answers_whole_prompts_serves_critics_alone() -> None:
    policy = PolicySettings.model_validate({"engine": f"{__name__}:Whole"})
    with pytest.raises(ConfigError, match="only answers whole prompts"):
        make_engine(policy)
    engine = make_engine(policy, continues=False)
    assert asyncio.run(engine.sample((), (), seed=0)).num_tokens == 9
    assert engine.stats().num_sampled_tokens == 9


def make_answer(**usage: Any) -> dict[str, Any]:
    choice = {"finish_reason": "stop", "message": {"content": "5"}}
    return {"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 1} | usage}


@pytest.mark.parametrize("count", [-1, 10**30, 2.0, None, True])
def test_what_can_be_no_number_of_tokens_is_none(count: Any) -> None:
    assert parse_server_completion(make_answer(completion_tokens=count), "chat").num_sampled is None
    assert parse_server_completion(make_answer(prompt_tokens=count), "chat").num_read is None


def test_tokens_of_a_cache_that_the_prompt_has_not_are_not_counted() -> None:
    for cached_tokens, counted in ((2, 2), (10**9, 3), (-1, None), (10**30, None)):
        details = {"cached_tokens": cached_tokens}
        assert (
            parse_server_completion(make_answer(prompt_tokens_details=details), "chat").num_cached
            == counted
        )
