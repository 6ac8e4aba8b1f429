"""A critic at a hosted service, which a strict local server of OpenAI's API stands in for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mclabel.engines.openai_response import parse_server_completion
from mclabel.judge.opinions import OpinionRun
from tests.judge.test_judge_job import NUM_ROWS, answer_prompt, check_opinions, write_solutions
from tests.support.commands import run_verb
from tests.support.hosted_server import KEY, MODEL, NUM_THOUGHTS, HostedServer

ENGINE = "judge.policy.engine"
CRITIC = (
    *("judge=critic", f"{ENGINE}=hosted", f"{ENGINE}.model={MODEL}"),
    *("judge.max_tokens=60", "judge.least_votes=2", "judge.most_votes=4"),
    *("block_solutions=2", f"{ENGINE}.api_key_env=HOSTED_KEY"),
)
NUM_TOKENS = NUM_THOUGHTS + len(answer_prompt("").split(" "))
"""Number of tokens of each answer."""


@pytest.fixture(autouse=True)
def has_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTED_KEY", KEY)
    monkeypatch.setattr("mclabel.engines.endpoints.FIRST_PAUSE_S", 0.005)


def make_command(server: HostedServer, source: Path, out: Path, *more: str) -> list[str]:
    endpoint = f"{ENGINE}.endpoints=['{server.url}']"
    return ["judge", str(source), "-o", str(out), *CRITIC, endpoint, *more]


def print_command(arguments: list[str], exit_code: int = 0) -> str:
    """Run a command and return its output in one line."""
    return " ".join(run_verb(arguments, code=exit_code).output.split())


def test_a_critic_asks_a_hosted_service(tmp_path: Path) -> None:
    source, out = write_solutions(tmp_path / "in.jsonl"), tmp_path / "out"
    sampling = (
        "judge.policy.system=Be strict.",
        f"{ENGINE}.parameters={{reasoning_effort: low, top_p: null}}",
    )
    with HostedServer(answer_prompt, fixed=("top_p",)) as server:
        command = make_command(server, source, out, *sampling)
        num_tokens = 2 * NUM_ROWS * NUM_TOKENS
        summary = f"24 solutions judged: an error in 18, unknown 0, {num_tokens} tokens"
        printed = print_command(command)
        assert f"The judge is critic. It asks {MODEL}" in printed and summary in printed
        assert len(server.bodies) == 2 * NUM_ROWS + 1  # plus a probe of the service
        assert summary in print_command(command) and len(server.bodies) == 2 * NUM_ROWS + 1
        body = server.bodies[-1]
    assert body.keys() == {
        *("model", "messages", "max_completion_tokens", "temperature", "reasoning_effort"),
    }
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert body["messages"][0]["content"] == "Be strict."
    assert {opinion.num_tokens for opinion in check_opinions(out).opinions.values()} == {
        2 * NUM_TOKENS
    }
    recorded = json.loads((out / "run.json").read_text())["config"]["judge"]["policy"]
    assert recorded["engine"] == {
        "model": MODEL,
        "parameters": [["reasoning_effort", "low"], ["top_p", None]],
    }
    assert not any(KEY.encode() in path.read_bytes() for path in out.rglob("*") if path.is_file())


def test_an_answer_that_is_kept_back_is_an_unknown_vote_whose_tokens_are_paid(
    tmp_path: Path,
) -> None:
    source, out = write_solutions(tmp_path / "in.jsonl", 4), tmp_path / "out"
    withheld: dict[str, dict[str, Any]] = {
        "row 0,": {"content": None, "refusal": "I will not."},
        "row 1,": {"content": "I looked", "finish_reason": "content_filter"},
        "row 2,": {"content": None},
    }

    def answer_or_withhold(prompt: str) -> str | dict[str, Any]:
        row = re.search(r"row \d,", prompt)
        return withheld.get(row[0] if row else "", answer_prompt(prompt))

    with HostedServer(answer_or_withhold) as server:
        assert "unknown 3" in print_command(make_command(server, source, out))
    opinions = OpinionRun.read(str(out)).opinions
    reasons = [opinions[str(number)].reason for number in (1, 2, 3)]
    assert reasons[0] == "the model refuses to answer: I will not."
    assert "content filter" in reasons[1] and "has no text" in reasons[2]
    assert opinions["1"].num_tokens == 4 * (NUM_THOUGHTS + 1)  # four votes, each requested once
    assert opinions["4"].num_tokens == 2 * NUM_TOKENS


Change = Callable[[dict[str, Any]], object]


RETRY = f"{ENGINE}.retry_s=5"


def num_paid(server: HostedServer) -> int:
    """Return the number of answers of the server, without the probe at the start."""
    return len(server.bodies) - 1


def choice_without(name: str) -> Change:
    return lambda answer: answer["choices"][0].pop(name)


def end_with(word: str | None) -> Change:
    return lambda answer: answer["choices"][0].update(finish_reason=word)


@pytest.mark.parametrize(
    ("change", "notice"),
    [
        (lambda answer: answer.pop("usage"), "responses have no usage.completion_tokens"),
        (lambda answer: answer.update(usage=None), "responses have no usage.completion_tokens"),
        (choice_without("finish_reason"), "responses have finish_reason='None'"),
        (end_with(None), "responses have finish_reason='None'"),
        (end_with("finished"), "responses have finish_reason='finished'"),
        *((end_with(word), "") for word in ("eos_token", "stop_sequence", "end_turn", "STOP")),
    ],
)
def test_answers_without_usage_or_a_known_end_are_read_and_that_is_said_once(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    change: Change,
    notice: str,
) -> None:
    source, out = write_solutions(tmp_path / "in.jsonl", 4), tmp_path / "out"
    with HostedServer(answer_prompt) as server:
        server.departure = lambda prompt, answer: change(answer)
        printed = print_command(make_command(server, source, out, RETRY))
        assert num_paid(server) == 8
    warned = [
        record.message for record in caplog.records if "policy.engine: responses" in record.message
    ]
    assert len(warned) == bool(notice) and all(notice in message for message in warned)
    is_unknown = "usage" in notice
    assert ("The tokens of 8 answers are not counted" in printed) == is_unknown
    tokens = {opinion.num_tokens for opinion in check_opinions(out, 4).opinions.values()}
    assert tokens == {None if is_unknown else 2 * NUM_TOKENS}


@pytest.mark.parametrize(
    ("word", "count", "reason"),
    [("max_tokens", 1, "length"), ("MAX_TOKENS", 1, "length"), ("unheard-of", 60, "length")],
)
def test_a_cut_answer_is_known_by_its_word_or_by_its_tokens(
    word: str, count: int, reason: str
) -> None:
    choice = {"finish_reason": word, "message": {"content": "5"}}
    answer = {"choices": [choice], "usage": {"completion_tokens": count}}
    assert parse_server_completion(answer, "chat").normalised_finish_reason(60) == reason


def in_reasoning(name: str) -> Callable[[dict[str, Any]], None]:
    """Return a function that moves the text of an answer into a reasoning field."""

    def move_content(answer: dict[str, Any]) -> None:
        message = answer["choices"][0]["message"]
        message[name], message["content"] = message["content"], "" if name == "reasoning" else None

    return move_content


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_an_answer_in_the_field_for_thoughts_is_read_if_a_key_says_so(
    tmp_path: Path, name: str
) -> None:
    source, move = write_solutions(tmp_path / "in.jsonl", 4), in_reasoning(name)
    with HostedServer(answer_prompt) as server:
        server.departure = lambda prompt, answer: move(answer)
        message = print_command(make_command(server, source, tmp_path / "none", RETRY), exit_code=2)
        assert "is in the field reasoning_content or reasoning. Set judge.policy.engine." in message
        assert "read_reasoning=true" in message and num_paid(server) == 0
        print_command(
            make_command(server, source, tmp_path / "out", RETRY, f"{ENGINE}.read_reasoning=true")
        )
        check_opinions(tmp_path / "out", 4)
        server.departure = lambda prompt, answer: "row 1," in prompt and move(answer)
        before = num_paid(server)
        print_command(make_command(server, source, tmp_path / "some", RETRY))
        assert num_paid(server) == before + 1 + 2 * 3 + 4  # votes, each requested once
    opinion = OpinionRun.read(str(tmp_path / "some")).opinions["2"]
    assert "Set judge.policy.engine.read_reasoning=true" in opinion.reason


@pytest.mark.parametrize(
    ("error", "is_asked_again"),
    [
        ({"message": "The provider broke."}, False),
        ({"message": "The provider broke.", "code": 400}, False),
        ("The provider broke.", False),
        ({"message": "The provider broke.", "code": 502}, True),
        ({"message": "The provider broke.", "code": "rate_limit_exceeded"}, True),
    ],
)
def test_an_error_with_the_status_of_a_success_is_shown(
    tmp_path: Path, error: Any, is_asked_again: bool
) -> None:
    source, out = write_solutions(tmp_path / "in.jsonl", 4), tmp_path / "out"
    broken: set[str] = set()

    def break_answer(prompt: str, answer: dict[str, Any]) -> None:
        if "row 1," in prompt and not (is_asked_again and prompt in broken):
            broken.add(prompt)
            answer.clear()
            answer["error"] = error

    with HostedServer(answer_prompt) as server:
        server.departure = break_answer
        print_command(make_command(server, source, out, RETRY))
    opinion = OpinionRun.read(str(out)).opinions["2"]
    assert opinion.is_known == is_asked_again
    assert is_asked_again or "The provider broke." in opinion.reason


@pytest.mark.parametrize(
    ("server", "more", "message"),
    [
        (
            {},
            [f"{ENGINE}.parameters={{top_k: 5}}"],
            r"Unrecognized request argument.*HTTP 400.*judge\.policy\.engine\.parameters=\{top_k: ",
        ),
        ({"fixed": ("temperature",)}, [], r"Unsupported value.*parameters=\{temperature: null\}"),
        (
            {},
            [f"{ENGINE}.length_parameter=max_tokens"],
            "Set judge.policy.engine.length_parameter=max_completion_tokens",
        ),
        (
            {},
            [f"{ENGINE}.model=gpt-none"],
            r"Check .*engine\.model\. The server's response: .*`gpt-none`",
        ),
        ({}, [f"{ENGINE}.parameters={{n: 2}}"], "parameters: n is set by mclabel itself"),
        *(
            ({}, [f"{ENGINE}.parameters={{user: {value}}}"], "must contain only JSON values")
            for value in (".nan", "{1: x}", "{at: !!binary aGk=}", r'"\uD800"')
        ),  # other values could not be sent or recorded, or would change when read back
        ({}, ["judge.policy.top_k=5"], r"judge\.policy\.top_k: not supported by .*engine=hosted"),
    ],
)
def test_what_a_service_refuses_is_said_with_the_remedy(
    tmp_path: Path, server: dict[str, Any], more: list[str], message: str
) -> None:
    source, out = write_solutions(tmp_path / "in.jsonl", 2), tmp_path / "out"
    with HostedServer(answer_prompt, **server) as running:
        assert re.search(
            message, print_command(make_command(running, source, out, *more), exit_code=2)
        )
        assert len(running.bodies) <= 1


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ((429, "insufficient_quota"), "says that the account has no credit left"),
        ((402, "invalid_request_error"), "says that the account has no credit left"),
        ((401, "invalid_api_key"), "rejects the key in HOSTED_KEY"),
    ],
)
def test_an_account_that_cannot_pay_stops_the_job_at_once(
    tmp_path: Path, error: tuple[int, str], message: str
) -> None:
    """The job does not wait, and writes no unknown opinions for the missing credit."""
    source, out = write_solutions(tmp_path / "in.jsonl", 2), tmp_path / "out"
    with HostedServer(answer_prompt) as server:
        command = make_command(server, source, out)

        def answer_then_fail(prompt: str) -> str:
            server.errors.append(error)  # for the next request
            return answer_prompt(prompt)

        server.answers = answer_then_fail
        assert message in print_command(command, exit_code=2)
        server.answers = answer_prompt
        server.errors.clear()
        print_command(command)
    check_opinions(out, 2)
