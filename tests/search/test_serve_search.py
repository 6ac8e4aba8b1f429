"""The server of searched solutions, with requests from OpenAI's own client."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest

from mclabel.core.errors import ConfigError, EngineDied
from mclabel.data.readers.generated import ArithReader
from mclabel.search import searcher as searcher_module
from mclabel.search.config import ServeSearchConfig
from mclabel.search.searcher import Searcher
from mclabel.search.serve import serve_search
from mclabel.serving.requests import RequestLimits
from mclabel.serving.run import ServerAddress
from tests.support.in_thread import WAIT_S, InThread, in_thread, until
from tests.support.ports import free_port

POLICY = {"model": "arith:policy", "max_tokens": 160, "temperature": 0.8}
SEARCH = {"kind": "beam", "n": 4, "width": 2}
HANGING = {"engine": {"kind": "scripted", "hang_after": 0}, "max_tokens": 1000}
SHORT, LONG = (
    next(iter(ArithReader(ArithReader.Settings(limit=1, num_steps=(n, n))).rows()))[1].text
    for n in (4, 8)
)
USER = [{"role": "user", "content": SHORT}]


class Running(InThread[Searcher]):
    """A running server of searched solutions."""

    def client(self, key: str = "none") -> openai.OpenAI:
        return openai.OpenAI(base_url=self.url, api_key=key, max_retries=0)

    def ask(self, **more: Any) -> Any:
        return self.client().chat.completions.create(
            **{"model": "arith:policy", "messages": USER, **more}
        )

    def post(self, body: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        connection.request(
            "POST",
            "/v1/chat/completions",
            body,
            {
                "content-type": "application/json",
                **{name.replace("_", "-"): value for name, value in headers.items()},
            },
        )
        answer = connection.getresponse()
        content = json.loads(answer.read())
        connection.close()
        return answer.status, content

    def start_request(self, **more: Any) -> http.client.HTTPConnection:
        """Return a connection on which a request has been sent and the answer is pending."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        body = json.dumps({"model": "arith:policy", "messages": USER, **more})
        connection.request(
            "POST", "/v1/chat/completions", body, {"content-type": "application/json"}
        )
        return connection


@contextmanager
def run_server(
    *,
    policy: dict[str, Any] = POLICY,
    limits: RequestLimits | None = None,
    token: str | None = None,
    **more: Any,
) -> Iterator[Running]:
    config = ServeSearchConfig.model_validate(
        {"policy": policy, "search": SEARCH, "scorer": "constant", **more}
    )

    def serve(on_ready: Callable[[str, Callable[[], None]], None]) -> None:
        serve_search(
            config,
            place=ServerAddress(port=0, token=token),
            limits=limits or RequestLimits(),
            on_ready=on_ready,
        )

    with in_thread(
        Running(), serve, part=Searcher, name="mclabel.search.serve.Searcher"
    ) as running:
        yield running


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with run_server() as running:
        yield running
    assert running.error is None


def test_a_problem_is_answered_with_its_searched_solution(server: Running) -> None:
    answer = server.ask()
    [choice] = answer.choices
    assert choice.finish_reason == "stop" and "\\boxed{" in choice.message.content
    search, usage = answer.search, answer.usage
    assert search["method"] == "beam" and search["num_finished"] >= 1
    assert search["scores"] == [0.5] * len(search["scores"]) and search["scores"]
    tokens = search["tokens"]
    assert usage.completion_tokens == tokens["sampled"] > tokens["pruned"] >= 0
    assert usage.total_tokens == usage.prompt_tokens + tokens["sampled"]
    assert server.ask().choices[0].message.content == choice.message.content
    assert server.ask(seed=7).search["tokens"] != tokens
    cut = server.ask(max_tokens=5, extra_body={"search": {"kind": "best_of_n", "n": 2}})
    assert (cut.choices[0].finish_reason, cut.search["method"]) == ("length", "best_of_n")
    assert cut.search["num_finished"] == 0 and cut.search["scores"] == []
    assert 0 < cut.usage.completion_tokens <= 256 * 160


def test_the_model_is_listed_and_another_is_not_found(server: Running) -> None:
    assert [model.id for model in server.client().models.list()] == ["arith:policy"]
    with pytest.raises(openai.NotFoundError, match="Use model='arith:policy'"):
        server.ask(model="gpt-4o")


def test_a_stream_holds_the_same_solution(server: Running) -> None:
    whole = server.ask()
    chunks = list(server.ask(stream=True, stream_options={"include_usage": True}))
    assert (
        "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        == whole.choices[0].message.content
    )
    assert len(chunks) > 4
    assert chunks[-1].usage == whole.usage and chunks[-1].choices == []
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-2].search == whole.search


@pytest.mark.slow
def test_several_solutions_differ_and_the_chosen_one_is_first(server: Running) -> None:
    """The problem is long, because samples for a short problem are often equal."""
    extra = {"search": {"kind": "best_of_n", "n": 4}, "choose": "majority"}
    messages = [{"role": "user", "content": LONG}]
    single = server.ask(messages=messages, extra_body=extra)
    two = server.ask(messages=messages, n=2, extra_body=extra)
    texts = [choice.message.content for choice in two.choices]
    assert len(set(texts)) == 2 and texts[0] == single.choices[0].message.content
    assert [choice.index for choice in two.choices] == [0, 1]
    streamed: dict[int, str] = {}
    for chunk in server.ask(messages=messages, n=2, stream=True, extra_body=extra):
        for choice in chunk.choices:
            streamed[choice.index] = streamed.get(choice.index, "") + (choice.delta.content or "")
    assert list(streamed.values()) == texts
    many = server.ask(n=100, extra_body=extra)
    assert len(many.choices) == len({c.message.content for c in many.choices}) <= 4


SYSTEM = {"role": "system", "content": "You are a pirate."}
REFUSED = [
    ({"temperature": 0.1}, r"temperature=0.1: the server uses 0.8 for every request"),
    ({"top_p": 0.5, "stop": ["x"]}, r"top_p=0.5: .* 1.0 .*; stop=\[\"x\"\]: the server uses \[\]"),
    ({"n": 0}, "n: must be at least 1"),
    ({"n": 1000}, "n: must be at most 128"),
    ({"seed": -1}, "seed: must be at least 0"),
    ({"messages": []}, "must contain exactly one user message"),
    ({"messages": [*USER, *USER]}, "no place for earlier turns"),
    ({"messages": [SYSTEM, *USER]}, "the server uses no system message"),
    ({"messages": [{"role": "user", "content": "  "}]}, "is empty"),
    ({"messages": [{"role": "user", "content": "x" * 40_000}]}, "at most 32768 characters"),
    ({"messages": [{"role": "user", "content": "1 + 1 " * 4_000}]}, "leaves no room"),
    ({"tools": [{"type": "function", "function": {"name": "x"}}]}, "tools="),
    ({"extra_body": {"whatever": 1}}, "whatever: unknown key"),
    ({"extra_body": {"search": {"kind": "os:system"}}}, "can name only built-in methods"),
    ({"extra_body": {"search": "mclabel.search.levels:BeamSearch"}}, "can name only"),
    ({"extra_body": {"search": {"kind": ["x"]}}}, "search.kind"),
    ({"extra_body": {"search": {"nn": 3}}}, "nn: unknown key"),
    ({"extra_body": {"search": {"n": 10**6}}}, "search.n: must be at most 4,096"),
    ({"extra_body": {"search": {"width": 10**12}}}, "search.width: must be at most 4096"),
    ({"extra_body": {"search": {"n": True}}}, "search.n: must be a whole number, is true"),
    ({"n": True}, "n: must be a whole number, is true"),
    ({"presence_penalty": False}, "presence_penalty=false: the server uses 0"),
    ({"extra_body": {"stream_options": {"include_usage": 1}}}, "must be true or false, is a num"),
    (
        {"messages": [{"role": "user", "content": 1}]},
        r"messages.0.content: must be a string or be a",
    ),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, r"content.0.text: required"),
    ({"extra_body": {"tokens": 100}}, "even a single solution may not fit"),
    ({"extra_body": {"tokens": 10**9}}, "must be at most 40960"),
    ({"extra_body": {"choose": "worst"}}, "choose: must be"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_what_cannot_be_heeded_is_refused(
    server: Running, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=message):
        server.ask(**changes)


def test_what_is_equal_to_the_servers_own_is_heeded(server: Running) -> None:
    answer = server.ask(
        messages=[{"role": "user", "content": [{"type": "text", "text": SHORT}]}],
        **{"temperature": 0.8, "top_p": 1, "presence_penalty": 0, "stop": None, "user": "me"},
        max_completion_tokens=4096,
    )
    assert answer.choices[0].message.content == server.ask().choices[0].message.content


HOSTILE = [
    (b"", 400, "not valid JSON"),
    (b"[]", 400, "must be a JSON object"),
    (b"\xff\xfe{}", 400, "not valid JSON"),
    (b'{"model": NaN}', 400, "NaN is not valid JSON"),
    (b'{"seed": ' + b"9" * 5000 + b"}", 400, "not valid JSON"),
    (b"[" * 200_000, 400, "nested too deeply"),
    (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, 400, "nested too deeply"),
    (b"{" + b" " * 10_000_000 + b"}", 413, "larger than 1,048,576 bytes"),
    (
        b'{"model": "arith:policy", "messages": [{"role": "user", "content": "\\ud800"}]}',
        400,
        "must be a string of valid Unicode",
    ),
]


@pytest.mark.parametrize(
    ("body", "status", "message"), HOSTILE, ids=[str(i) for i, _ in enumerate(HOSTILE)]
)
def test_hostile_bodies(server: Running, body: bytes, status: int, message: str) -> None:
    answer_status, content = server.post(body)
    assert answer_status == status
    assert message in content["error"]["message"]
    assert server.ask(max_tokens=1).choices  # the server still responds


def test_other_pages_cannot_use_a_server_without_a_token(server: Running) -> None:
    body = json.dumps({"model": "arith:policy", "messages": USER}).encode()
    assert server.post(body, host="evil.example")[0] == 421
    assert server.post(body, content_type="text/plain")[0] == 415
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT_S)
    connection.request("OPTIONS", "/v1/chat/completions")
    answer = connection.getresponse()
    assert answer.status == 405 and "error" in json.loads(answer.read())


def test_a_wrong_token_is_refused() -> None:
    with (
        run_server(token="sesame", policy=HANGING) as server,
        pytest.raises(openai.AuthenticationError, match="token"),
    ):
        server.client("none").models.list()


def test_too_many_are_turned_away() -> None:
    with run_server(policy=HANGING, limits=RequestLimits(max_live=1, max_waiting=1)) as server:
        _held = [server.start_request(), server.start_request()]
        until(lambda: len(server.parts[0].requests) == 2)
        with pytest.raises(openai.RateLimitError, match="Try again in 5 seconds") as refused:
            server.ask()
        assert refused.value.response.headers["retry-after"] == "5"
        with pytest.raises(openai.RateLimitError):
            list(server.ask(stream=True))


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_ends_its_search(stream: bool) -> None:
    with run_server(policy=HANGING) as server:
        [searcher] = server.parts
        engine = searcher._policy
        connection = server.start_request(stream=stream)
        until(lambda: engine.stats().num_live == 4)
        connection.close()
        until(lambda: len(searcher.requests) == 0)
        until(lambda: engine.stats().num_live == 0)


def test_comments_keep_a_stream_alive_and_its_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mclabel.search.serve.KEEP_ALIVE_S", 0.01)
    with run_server(policy=HANGING) as server:
        answer = server.start_request(stream=True).getresponse()
        assert answer.getheader("content-type", "").startswith("text/event-stream")
        assert [answer.readline() for _ in range(6)] == [b": searching\n", b"\n"] * 3
        server.stop()
        last = [
            line
            for line in answer.read().decode().splitlines()
            if line and not line.startswith(":")
        ]
        assert [json.loads(line.removeprefix("data: "))["error"]["message"] for line in last] == [
            "the server is shutting down"
        ]


def test_a_dead_engine_ends_the_server() -> None:
    with run_server(
        policy={"engine": {"kind": "scripted", "crash_rate": 1}, "max_tokens": 1000}
    ) as server:
        with pytest.raises(openai.InternalServerError, match="the engine died") as refused:
            server.ask()
        assert refused.value.status_code == 503
        assert server.thread is not None
        server.thread.join(WAIT_S)
        assert isinstance(server.error, EngineDied)


def test_a_fault_of_the_server_is_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail_by_mistake(*arguments: object, **more: object) -> None:
        raise KeyError("a mistake of ours")

    with run_server(policy=HANGING) as server:
        monkeypatch.setattr(searcher_module, "search_problem", fail_by_mistake)
        with pytest.raises(openai.InternalServerError, match="an error in the server"):
            server.ask()
        with pytest.raises(openai.APIError, match="an error in the server"):
            list(server.ask(stream=True))


@pytest.mark.parametrize(
    ("place", "more", "message"),
    [
        (ServerAddress(host="0.0.0.0", port=0), {}, "clients need a token"),
        (ServerAddress(port=0), {"scorer": "exact"}, "works only for problems with known truth"),
        (ServerAddress(host="192.0.2.1", port=0, token="x"), {}, "cannot listen on"),
    ],
)
def test_what_cannot_be_served_is_refused_at_the_start(
    place: ServerAddress, more: dict[str, Any], message: str
) -> None:
    config = ServeSearchConfig.model_validate({"policy": POLICY, "scorer": "constant", **more})
    with pytest.raises(ConfigError, match=message):
        serve_search(config, place=place, limits=RequestLimits(), on_ready=lambda url, stop: stop())


def test_the_file_of_a_job_is_served_as_it_stands() -> None:
    assert (
        ServeSearchConfig.model_validate(
            {
                "scorer": "constant",
                **{"out": "runs/x", "problems": {"source": "arith"}, "block_problems": 3},
            }
        ).policy.max_tokens
        == 512
    )
    with pytest.raises(ValueError, match="block_of_problems"):
        ServeSearchConfig.model_validate({"scorer": "constant", "block_of_problems": 3})


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_in_order(number: signal.Signals) -> None:
    port = free_port()
    keys = ["policy.engine={kind: scripted, hang_after: 0}", "policy.max_tokens=1000"]
    command = ["serve-search", "/dev/null", "scorer=constant", *keys, "--port", str(port)]
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "mclabel", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    try:
        assert process.stdout is not None and any("http://" in line for line in process.stdout)
        server = Running(url=f"http://127.0.0.1:{port}/v1")
        assert server.start_request(stream=True).getresponse().status == 200
        process.send_signal(number)
        out, errors = process.communicate(timeout=WAIT_S)
        assert (process.returncode, errors) == (0, ""), out + errors
    finally:
        process.kill()
        process.wait()
