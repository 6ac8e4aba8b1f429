"""The `openai` engine with servers that refuse, limit, fail and recover."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mclabel.core.errors import EngineError, RequestFailed, UnusableResponse
from mclabel.core.records import Completion
from mclabel.engines import PolicySettings
from mclabel.engines.endpoints import RequestSlots, compute_backoff_s, parse_retry_after_s
from mclabel.engines.openai import OpenAIEngine
from tests.support.openai_server import ANSWER, Server, policy_text
from tests.support.ports import free_port

KEY = "sk-secret-0123456789"
SAMPLING = {"temperature": 0.7, "top_p": 0.9, "top_k": 5, "max_tokens": 100}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses between attempts to a hundredth."""
    monkeypatch.setattr("mclabel.engines.endpoints.FIRST_PAUSE_S", 0.005)
    monkeypatch.setattr("mclabel.engines.served.ServedEngine.start_s", 0.2)


@asynccontextmanager
async def running_engine(
    *urls: str, sampling: Mapping[str, Any] = SAMPLING, **settings: Any
) -> AsyncIterator[OpenAIEngine]:
    """Start an engine for these servers, and close it at the end."""
    servers = OpenAIEngine.Settings(endpoints=list(urls), **{"retry_s": 5.0, **settings})
    policy = OpenAIEngine(PolicySettings(model="arith:policy", engine=servers, **sampling))
    await policy.start()
    try:
        yield policy
    finally:
        await policy.close()


def sample_completions(
    *urls: str,
    prefix: str = "",
    count: int = 1,
    sampling: Mapping[str, Any] = SAMPLING,
    **settings: Any,
) -> list[Completion]:
    """Return one completion of each of `count` problems, from a new engine."""

    async def run() -> list[Completion]:
        async with running_engine(*urls, sampling=sampling, **settings) as policy:
            requests = [
                policy.sample(policy.prompt_ids(f"What is 1 + {i}?"), policy.encode(prefix), seed=i)
                for i in range(count)
            ]
            completions = await asyncio.gather(*requests)
            assert policy.stats().num_sampled_tokens >= sum(len(c.ids) for c in completions)
            assert policy.stats().num_live == policy.stats().num_waiting == 0
            return completions

    return asyncio.run(run())


def test_ids_go_out_and_come_back_with_every_parameter() -> None:
    text = policy_text()
    with Server() as server:
        completions = sample_completions(server.url, prefix="So,\n", per_request_seeds=True)
        body = server.bodies[-1]
        (stopped,) = sample_completions(server.url, sampling={"stop": ["= 2."]})
        assert server.bodies[-1]["stop"] == ["= 2."] and stopped.text == "1 + 1 = 2."
    assert completions == [Completion(ids=text.encode(ANSWER), text=ANSWER, finish_reason="stop")]
    assert body["prompt"] == [*text.prompt_ids("What is 1 + 0?"), *text.encode("So,\n")]
    expected = {"temperature": 0.7, "top_p": 0.9, "top_k": 5, "min_p": 0.0, "seed": 0, "n": 1}
    expected |= {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
    expected |= {"max_tokens": 100 - len(text.encode("So,\n")), "return_token_ids": True}
    expected |= {"stop_token_ids": sorted(text.end_ids()), "skip_special_tokens": False}
    assert {name: body[name] for name in expected} == expected


def test_what_the_length_cuts_is_truncated_and_no_room_asks_nothing() -> None:
    short = {"max_tokens": 6}
    with Server() as server:
        (completion,) = sample_completions(server.url, sampling=short)
        num_requests = len(server.bodies)
        (nothing,) = sample_completions(server.url, sampling=short, prefix="1 2 3 4 5 6 7 8 9")
        assert len(server.bodies) == num_requests + 1  # the probe of the second start
    assert (completion.finish_reason, len(completion.ids)) == ("length", 6)
    assert nothing == Completion(ids=(), text="", finish_reason="length")


def test_a_server_without_ids_has_its_texts_tokenised_once() -> None:
    with Server(returns_ids=False) as server:
        (completion,) = sample_completions(server.url)
        assert completion.ids == policy_text().encode(ANSWER)
        with pytest.raises(EngineError, match=r"policy\.stop: the server returns no token ids"):
            sample_completions(server.url, sampling={"stop": ["x"]})


def test_limits_failures_and_lost_connections_are_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mclabel.engines.served.ServedEngine.start_s", 60.0)
    with Server() as server:
        probe = sample_completions(server.url, retry_s=60.0)
        server.faults += [(429, {"Retry-After": "0.01"}), (503, {}), "drop", (500, {}), "abort"]
        before = len(server.bodies)
        assert sample_completions(server.url, count=3, retry_s=60.0) == probe * 3
        assert len(server.bodies) == before + 1 + 3 + 5


USAGE = b'"usage": {"prompt_tokens": 9}'
NONSENSE = [
    (b"<html>busy</html>", "does not return JSON but '<html>busy"),
    (b'{"choices": [{"te', "does not return JSON"),
    (b"[]", "is not a JSON object"),
    (b"{%s}" % USAGE, "has no choices"),
    (b'{"choices": null, %s}' % USAGE, "has no choices"),
    (b'{"choices": [], %s}' % USAGE, "has no choices"),
    (b'{"choices": [{"text": "x", "finish_reason": "stop"}]}', "has neither usage"),
    (b'{"choices": [{"text": null, "finish_reason": "stop"}], %s}' % USAGE, "has no text"),
    (b'{"choices": [{"token_ids": ["a"]}], %s}' % USAGE, "has no token ids"),
    (
        b'{"choices": [{"text": "x", "finish_reason": "content_filter"}],'
        b' "usage": {"prompt_tokens": 10}}',  # as many as the prompt has
        "aborted a completion: content_filter",
    ),
]


def test_an_answer_that_cannot_be_used_fails_its_request_alone() -> None:
    async def run(url: str) -> None:
        async with running_engine(url) as policy:
            prompt = policy.prompt_ids("What is 1 + 1?")
            for body, message in NONSENSE:
                server.faults += [body] * 2
                # the request was repeated
                assert (await policy.sample(prompt, (), seed=0)).text == ANSWER
                server.faults += [body] * 3
                with pytest.raises(UnusableResponse, match=message):
                    await policy.sample(prompt, (), seed=0)
            server.faults += [b"{}"] * 3 * 16
            for _ in range(14):  # one failed request from above comes before them
                with pytest.raises(UnusableResponse):
                    await policy.sample(prompt, (), seed=0)
            with pytest.raises(
                EngineError, match=r"has no choices.* The last 16 requests failed"
            ) as caught:
                await policy.sample(prompt, (), seed=0)
            # not the failure of a single request
            assert not isinstance(caught.value, RequestFailed)

    with Server() as server:
        asyncio.run(run(server.url))


@pytest.mark.parametrize(
    ("end", "num_ids", "finish_reason"),
    [
        ({"finish_reason": "eos_token"}, 5, "stop"),
        ({"finish_reason": "unheard-of"}, 5, "stop"),
        ({"finish_reason": None}, 5, "stop"),
        ({}, 5, "stop"),
        ({}, 7, "length"),  # as many as are allowed
        ({"finish_reason": "max_tokens"}, 5, "length"),
    ],
)
def test_other_words_for_the_end_and_no_usage_are_read(
    end: dict[str, Any], num_ids: int, finish_reason: str
) -> None:
    """The ids of the prompt show what the server has read, as its usage would."""

    async def run(url: str) -> Completion:
        async with running_engine(url, sampling={"max_tokens": 7}) as policy:
            prompt = policy.prompt_ids("What is 1 + 1?")
            answer = {
                "choices": [{"text": "", "token_ids": policy.encode(ANSWER)[:num_ids], **end}]
            }
            server.faults += [json.dumps({**answer, "prompt_token_ids": prompt}).encode()] * 3
            return await policy.sample(prompt, (), seed=0)

    with Server() as server:
        completion = asyncio.run(run(server.url))
    assert (completion.finish_reason, len(completion.ids)) == (finish_reason, num_ids)


def test_who_waits_for_a_server_that_fails_others_gives_up_when_they_do() -> None:
    async def run(url: str) -> list[Any]:
        async with running_engine(url, retry_s=0.0) as policy:
            server.faults += [(503, {"Retry-After": "300"})]
            prompt = policy.prompt_ids("What is 1 + 1?")
            requests = [policy.sample(prompt, (), seed=i) for i in range(20)]
            return await asyncio.gather(*requests, return_exceptions=True)

    with Server() as server:
        results = asyncio.run(asyncio.wait_for(run(server.url), 60))
    failed = [result for result in results if isinstance(result, RequestFailed)]
    assert failed and all("gave no response within 0 s" in str(failure) for failure in failed)


def test_a_dead_endpoint_is_set_aside_and_used_again_when_it_is_back() -> None:
    with Server() as first, Server() as second:
        assert (
            len(sample_completions(f"http://127.0.0.1:{free_port()}/v1", first.url, count=8)) == 8
        )
        num_requests = len(first.bodies)
        assert len(sample_completions(first.url, second.url, count=40)) == 40
        assert 5 < len(first.bodies) - num_requests < 36  # problems are spread over both servers
        first.faults += [(503, {})] * 4
        assert len(sample_completions(first.url, second.url, count=40)) == 40


def test_no_more_than_max_live_at_a_time() -> None:
    with Server(delay_s=0.02) as server:
        assert len(sample_completions(server.url, count=30, max_live=4)) == 30
        assert server.most_live == 4


def test_chat_is_used_where_the_server_shows_that_it_continues_exactly() -> None:
    with Server(chat=True) as server:
        completions = sample_completions(server.url, api="chat", prefix="So,\n")
        body = server.bodies[-1]
    assert completions[0].text == ANSWER
    assert body["messages"][-1] == {"role": "assistant", "content": "So,\n"}
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)


@pytest.mark.parametrize(
    ("server", "arguments", "message"),
    [
        ({"takes_ids": False}, {}, r"must accept token ids as a prompt.*vLLM's"),
        ({"chat": True, "continues": False}, {"api": "chat"}, "Set policy.engine.api=completions"),
        (
            {"chat": True, "returns_ids": False},
            {"api": "chat"},
            "does not return the token ids of the prompt",
        ),
        ({}, {"api": "chat"}, "has no such address or model"),
        ({"extra_tokens": 1}, {}, r"read 20 tokens, which are not the 19"),
        ({"names": ("a", "b")}, {}, r"policy\.engine\.model=None: .* serves a, b"),
        ({"names": ("a", "b")}, {"model": "c"}, "model='c'"),
        ({"is_html": True}, {}, "does not return JSON"),
        ({"key": KEY}, {}, r"requires an API key\. Set policy\.engine\.api_key_env"),
    ],
)
def test_a_server_that_cannot_do_what_is_needed_is_refused(
    server: dict[str, Any], arguments: dict[str, Any], message: str
) -> None:
    with Server(**server) as running, pytest.raises(EngineError, match=message):
        sample_completions(running.url, **arguments)


def test_keys_are_read_from_the_environment_and_never_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with Server(key=KEY) as server:
        monkeypatch.setenv("SERVER_KEY", KEY)
        assert sample_completions(server.url, api_key_env="SERVER_KEY")[0].text == ANSWER
        monkeypatch.setenv("SERVER_KEY", "sk-wrong-1")
        with pytest.raises(EngineError, match="rejects the key in SERVER_KEY") as caught:
            sample_completions(server.url, api_key_env="SERVER_KEY")
        monkeypatch.delenv("SERVER_KEY")
        with pytest.raises(EngineError, match="SERVER_KEY: the variable is not set"):
            sample_completions(server.url, api_key_env="SERVER_KEY")
    shown = caplog.text + str(caught.value)
    assert KEY not in shown and "sk-wrong-1" not in shown


def test_a_server_that_repeats_the_key_is_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER_KEY", KEY)
    with (
        Server(names=(f"model for {KEY}", "other")) as server,
        pytest.raises(EngineError) as caught,
    ):
        sample_completions(server.url, api_key_env="SERVER_KEY", model="x")
    assert KEY not in str(caught.value) and "***" in str(caught.value)


def test_pauses_double_up_to_a_bound() -> None:
    assert [compute_backoff_s(n) for n in (1, 2, 3, 10**6)] == [0.005, 0.01, 0.02, 30.0]


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1e9"}, 300.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
def test_a_server_says_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert parse_retry_after_s(headers) == seconds


def test_slots_are_given_to_the_most_urgent_and_survive_cancelling() -> None:
    async def run() -> list[int]:
        slots, order, go = RequestSlots(1), [], asyncio.Event()

        async def work(priority: int) -> None:
            async with slots.hold_slot(priority):
                order.append(priority)
                await go.wait()

        first = asyncio.create_task(work(9))
        await asyncio.sleep(0)
        waiting = [asyncio.create_task(work(priority)) for priority in (3, 1, 2)]
        await asyncio.sleep(0)
        waiting[2].cancel()
        go.set()
        await asyncio.gather(first, *waiting, return_exceptions=True)
        await asyncio.wait_for(work(0), 5)
        return order

    assert asyncio.run(run()) == [9, 1, 3, 0]
