"""The reward server with a real PRM, called by mclabel's client and by OpenRLHF's."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mclabel.core.errors import ConfigError, DataError, EngineDied
from mclabel.data.readers.generated import ArithReader
from mclabel.prm.scoring.scorer import load_prm
from mclabel.rl import client as client_module
from mclabel.rl.client import RewardClient, RewardError, RewardItem
from mclabel.rl.config import ServeRewardsConfig
from mclabel.rl.rewarder import Rewarder
from mclabel.rl.serve import serve_rewards
from mclabel.serving.requests import RequestLimits
from mclabel.serving.run import ServerAddress
from tests.support.in_thread import WAIT_S, InThread, in_thread, until
from tests.support.ports import free_port
from tests.support.serving import trained_prm

PROBLEMS = [row.text for _, row in ArithReader(ArithReader.Settings(limit=3)).rows()]
RIGHT = "1 + 1 = 2\nSo it is \\boxed{2}."
WRONG = "1 + 1 = 3\nSo it is \\boxed{3}."
REFUSED_KINDS = ["empty", "repeated", "too_long", "not_scored", "unmatched", "no_gold"]


class Running(InThread[Rewarder]):
    """A running server of rewards."""

    def client(self, **more: Any) -> RewardClient:
        return RewardClient(self.url, timeout_s=WAIT_S, **more)

    def post(self, path: str, body: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
        connection = self.start_post(path, body, **headers)
        answer = connection.getresponse()
        content = json.loads(answer.read())
        connection.close()
        return answer.status, content

    def start_post(self, path: str, body: bytes, **headers: str) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        connection.request(
            "POST",
            path,
            body,
            {
                "content-type": "application/json",
                **{name.replace("_", "-"): value for name, value in headers.items()},
            },
        )
        return connection


@contextmanager
def run_server(
    *, token: str | None = None, limits: RequestLimits | None = None, **keys: Any
) -> Iterator[Running]:
    config = ServeRewardsConfig.model_validate(keys)

    def serve(on_ready: Callable[[str, Callable[[], None]], None]) -> None:
        serve_rewards(
            config,
            address=ServerAddress(port=0, token=token),
            limits=limits or RequestLimits(),
            on_ready=on_ready,
        )

    with in_thread(Running(), serve, part=Rewarder, name="mclabel.rl.serve.Rewarder") as running:
        yield running


@pytest.fixture(scope="module")
def prm(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(trained_prm(tmp_path_factory.mktemp("prm")))


@pytest.fixture(scope="module")
def server(prm: str) -> Iterator[Running]:
    with run_server(prm=prm, credit="prm_min") as running:
        yield running
    assert running.error is None


@pytest.fixture(scope="module")
def plain() -> Iterator[Running]:
    """Yield a server without a PRM."""
    with run_server() as running:
        yield running
    assert running.error is None


def test_outcomes_scores_and_credits(server: Running, prm: str) -> None:
    rewards = right, wrong = server.client().score(
        [RewardItem(problem=PROBLEMS[0], completion=text, answer="2") for text in (RIGHT, WRONG)]
    )
    assert [(reward.outcome, reward.reward) for reward in rewards] == [("right", 1), ("wrong", 0)]
    assert right.ends == (10, len(RIGHT)) and right.ends_segment == (True, True)
    for reward, scores in zip(
        rewards,
        load_prm(prm).score([PROBLEMS[0]] * 2, [[text[:10], text[10:]] for text in (RIGHT, WRONG)]),
        strict=True,
    ):
        assert reward.scores == pytest.approx(scores, abs=1e-5)
    assert (
        right.step_rewards
        == right.credits
        == pytest.approx(
            [score - min(wrong.scores) + 0.5 for score in (min(right.scores), right.scores[1])]
        )
    )


def test_groups_are_compared_within_themselves(plain: Running) -> None:
    first_group = [RewardItem(problem="p", completion=text, answer="2") for text in (RIGHT, WRONG)]
    second_group = [RewardItem(problem="q", completion=text, answer="2") for text in (RIGHT, RIGHT)]
    rewards = plain.client().score(
        [
            first_group[0],
            second_group[0],
            [RewardItem(problem="p", completion=RIGHT, answer="2", group="x")][0],
            first_group[1],
            second_group[1],
        ]
    )
    assert [reward.credits for reward in rewards] == [
        (0.5, 0.5),
        (0, 0),
        (0, 0),
        (-0.5, -0.5),
        (0, 0),
    ]
    assert rewards[0].ends_segment == (False, True) and rewards[0].step_rewards == (0, 0.5)
    assert all(reward.scores == () for reward in rewards)
    assert plain.client().score([]) == []


@pytest.mark.parametrize("truncated", ["wrong", "exclude"])
def test_what_nothing_is_known_of_moves_no_baseline(truncated: str) -> None:
    texts = {RIGHT: False, WRONG: False, "1\\": False, RIGHT + " ": True}
    items = [
        RewardItem(
            problem="p", completion=text, answer="2" if "box" in text else "\\frac{", truncated=cut
        )
        for text, cut in texts.items()
    ]
    with run_server(prm=None, truncated=truncated) as server:
        rewards = server.client().score([*items, replace(items[2], problem="q")])
        masked = server.client().health()["num_masked"]
    baseline = 1 / 3 if truncated == "wrong" else 1 / 2
    assert [reward.credits[0] for reward in rewards[:2]] == pytest.approx([1 - baseline, -baseline])
    assert [(reward.outcome, reward.masked, reward.reward) for reward in rewards[3:]] == [
        ("truncated", False, 0) if truncated == "wrong" else ("truncated", True, 1 / 2),
        ("ungraded", True, 0),
    ]
    assert set(rewards[4].credits) == {0} and masked == sum(reward.masked for reward in rewards)


@pytest.mark.parametrize(
    ("text", "kind", "num_steps"),
    [
        ("", "empty", 0),
        (" \n\t \n", "empty", 0),
        ("a\nb\n" * 2 + "a", "repeated", 5),
        ("ab\n" * 1000, "repeated", 1000),
        ("x " * 5000, "too_long", 1),
        ("x" * 300_000, "too_long", 1),
    ],
    ids=range(6),
)
def test_refusals_are_counted_and_blamed(
    server: Running, text: str, kind: str, num_steps: int
) -> None:
    client = server.client()
    before = client.health()
    refused, right = client.score(
        [RewardItem(problem="p", completion=completion, answer="2") for completion in (text, RIGHT)]
    )
    assert (refused.refused, refused.reward, refused.outcome) == (kind, 0, "ungraded")
    assert refused.scores == () and len(refused.ends) == len(refused.credits) == num_steps
    assert all(credit < 0 for credit in refused.credits)
    assert right.refused is None and all(credit > 0 for credit in right.credits)
    after = client.health()
    assert after["num_scored"] == before["num_scored"] + 1
    counts = {**before["num_refused"], kind: before["num_refused"][kind] + 1}
    assert after["num_refused"] == counts and list(counts) == REFUSED_KINDS


def test_an_unscored_completion_is_no_evidence(server: Running) -> None:
    before = server.client().health()["num_masked"]
    reward = server.client().score(
        [RewardItem(problem="p", completion=text, answer="2") for text in ("a\n\ud800", RIGHT)]
    )[0]
    assert (reward.masked, reward.reward, reward.outcome) == (True, 1, "ungraded")
    assert set(reward.credits) == {0} and server.client().health()["num_masked"] > before


def test_without_a_checker_the_scores_reward(prm: str) -> None:
    with run_server(prm=prm, check=False, aggregate="mean", credit="first_error") as server:
        for reward in server.client().score([RewardItem(problem, RIGHT) for problem in PROBLEMS]):
            assert reward.outcome is None
            assert reward.reward == pytest.approx(sum(reward.scores) / len(reward.scores))
        assert (
            server.client().health().items()
            >= {
                **{"checker": None, "credit": "first_error", "prm": prm, "status": "ok"},
                "num_scored": 3,
            }.items()
        )


ITEM = {"problem": "p", "completion": "c", "answer": "1"}
HOSTILE = [
    (b"", 400, "not valid JSON"),
    (b"[]", 400, "must be a JSON object"),
    (b"\xff{}", 400, "not valid JSON"),
    (b'{"items": [NaN]}', 400, "NaN is not valid JSON"),
    (b"[" * 200_000, 400, "nested too deeply"),
    (b"{}", 400, "items: required"),
    (b'{"items": 3}', 400, "items"),
    (b'{"items": [{"problem": "p"}]}', 400, "completion: required"),
    (json.dumps({"items": [{**ITEM, "x": 1}]}).encode(), 400, "x: unknown key"),
    (json.dumps({"items": [{**ITEM, "completion": 1}]}).encode(), 400, "completion"),
    (json.dumps({"items": [{**ITEM, "problem": "\ud800"}]}).encode(), 400, "valid Unicode"),
    (json.dumps({"items": [{**ITEM, "problem": "p" * 70_000}]}).encode(), 400, "at most 65536"),
    (json.dumps({"items": [{**ITEM, "answer": None}]}).encode(), 400, "has no gold answer"),
    (json.dumps({"items": [ITEM, {**ITEM, "answer": " "}]}).encode(), 400, r"items[1]: has no"),
    (
        json.dumps({"items": [ITEM] * 1025}).encode(),
        413,
        "has 1,025 elements, but a request may have at most 1,024",
    ),
    (json.dumps({"items": [{}] * 1000}).encode(), 400, "problem: required"),
    (b"{" + b" " * 40_000_000 + b"}", 413, "larger than 33,554,432 bytes"),
]


@pytest.mark.parametrize(("body", "status", "message"), HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_bodies(plain: Running, body: bytes, status: int, message: str) -> None:
    answer_status, content = plain.post("/score", body)
    assert answer_status == status, content
    error_message = content["error"]["message"]
    assert message in error_message and len(error_message) <= 2_000
    assert plain.client().health()["status"] == "ok"


def make_query(prompt: str, completion: str) -> dict[str, Any]:
    return {"query": [prompt + completion], "prompts": [prompt], "labels": ["2"]}


def post_query(server: Running, content: dict[str, Any]) -> dict[str, Any]:
    status, answer = server.post("/get_reward", json.dumps(content).encode())
    assert status == 200, answer
    return answer


def test_openrlhf_form(prm: str) -> None:
    around = ["<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"]
    prompt = PROBLEMS[0].join(around)
    with run_server(prm=prm, check=False, around=around) as server:
        [expected] = server.client().score([RewardItem(PROBLEMS[0], RIGHT)])
        answer = post_query(server, make_query(prompt, RIGHT + "<|im_end|>"))
        assert answer["rewards"] == answer["scores"] == [expected.reward]
        assert answer["extra_logs"] == {
            "refused": [0],
            "masked": [0],
            **{f"refused_{kind}": [0] for kind in REFUSED_KINDS},
        }
        unmatched = post_query(server, make_query(PROBLEMS[0], RIGHT))
        assert unmatched["rewards"] == [0] and unmatched["extra_logs"]["refused_unmatched"] == [1]
        assert post_query(server, {**make_query(prompt, RIGHT), "query": ["something else"]})[
            "extra_logs"
        ]["refused_unmatched"] == [1]
        assert server.client().health()["num_refused"]["unmatched"] == 2


def test_openrlhf_labels(plain: Running) -> None:
    many = {
        "query": ["p" + RIGHT, "p" + WRONG, "p", "q" + RIGHT + "</s>"],
        "prompts": ["p", "p", "p", "q"],
        "labels": ["2", 2, 2.0, "1 + 1 = 2.\n#### 2"],
    }
    answer = post_query(plain, many)
    assert answer["rewards"] == [1, 0, 0, 1]
    assert answer["extra_logs"]["refused_empty"] == [0, 0, 1, 0]
    assert post_query(plain, {"query": [], "prompts": [], "labels": []})["rewards"] == []
    for wrong, message in [
        ({**many, "labels": ["2"]}, "4 query, 4 prompts, 1 labels"),
        ({**many, "labels": None}, "labels[0]: has no gold answer"),
        ({**many, "query": "p"}, "query"),
        ({**many, "query": [1] * 4}, "query"),
    ]:
        status, content = plain.post("/get_reward", json.dumps(wrong).encode())
        assert status == 400 and message in content["error"]["message"]


def test_golds_in_the_forms_of_data_sets(plain: Running) -> None:
    forms: list[Any] = ["1 + 1 = 2.\n#### 2", 2, 2.0, ["5", "2"], '["2"]', Decimal("2.0")]
    forms += [np.array(["2"], dtype=object), {"style": "rule", "ground_truth": "2"}]
    for gold in forms:
        items = [RewardItem(problem="p", completion=text, answer=gold) for text in (RIGHT, WRONG)]
        assert [reward.outcome for reward in plain.client().score(items)] == ["right", "wrong"], (
            gold
        )


def test_completions_of_a_problem_without_a_gold_are_masked(plain: Running) -> None:
    """A row without a gold does not end a training.

    Its completions are masked.
    """
    before = plain.client().health()["num_refused"]["no_gold"]
    rewards = plain.client().score(
        [RewardItem(problem="p", completion=RIGHT, answer=gold) for gold in ("proof", "N/A", "2")]
    )
    assert [(reward.masked, reward.refused, reward.outcome) for reward in rewards] == [
        *[(True, "no_gold", "ungraded")] * 2,
        (False, None, "right"),
    ]
    assert set(rewards[0].credits) == {0}
    assert plain.client().health()["num_refused"]["no_gold"] == before + 2
    for bad, message in [(True, "its gold answer must be"), ("", "has no gold answer")]:
        with pytest.raises(RewardError, match=rf"items\[0\]: {message}"):
            plain.client().score([RewardItem(problem="p", completion=RIGHT, answer=bad)])


@contextmanager
def held_passes(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None = None
) -> Iterator[list[int]]:
    """Make a PRM's passes wait for the end of the context, and yield the sizes of all passes."""
    from mclabel.prm.scoring.score import PRM

    real, go, sizes = PRM.score_encoded, threading.Event(), list[int]()

    def score(prm: Any, encoded: Any, **more: Any) -> Any:
        sizes.append(len(encoded))
        assert go.wait(WAIT_S)
        if error is not None:
            raise error
        return real(prm, encoded, **more)

    monkeypatch.setattr(PRM, "score_encoded", score)
    try:
        yield sizes
    finally:
        go.set()


def test_requests_share_a_pass_and_those_gone_cost_none(
    prm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [json.dumps({"items": [{**ITEM, "completion": f"{n}\nx"}]}).encode() for n in range(6)]
    with run_server(prm=prm) as server:
        [rewarder] = server.parts
        scorer = rewarder._scorer
        assert scorer is not None
        with held_passes(monkeypatch) as sizes:
            first = server.start_post("/score", bodies[0])
            until(lambda: sizes == [1])
            others = [server.start_post("/score", body) for body in bodies[1:]]
            until(lambda: scorer.state().num_waiting == 5)
            for gone in others[:2]:
                gone.close()
            until(lambda: len(rewarder.requests) == 4)
        assert [connection.getresponse().status for connection in (first, *others[2:])] == [200] * 4
        assert sizes == [1, 3]


def test_too_many_are_turned_away(prm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps({"items": [ITEM]}).encode()
    with run_server(prm=prm, limits=RequestLimits(max_live=1, max_waiting=1)) as server:
        [rewarder] = server.parts
        with held_passes(monkeypatch):
            connections = [server.start_post("/score", body) for _ in range(2)]
            until(lambda: len(rewarder.requests) == 2)
            status, content = server.post("/score", body)
            assert status == 429 and "Try again in 5 seconds" in content["error"]["message"]
            waits = list[float]()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(client_module, "time", SimpleNamespace(sleep=waits.append))
                with pytest.raises(RewardError, match=r"\(429\): 2 requests are already running"):
                    server.client().score([RewardItem("p", "c", "1")])
            assert waits == [0.25, 0.5, 1, 2, 4, 8, 10]
        assert [connection.getresponse().status for connection in connections] == [200, 200]


def test_a_dead_prm_ends_the_server(prm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    with run_server(prm=prm) as server:
        with held_passes(monkeypatch, torch.OutOfMemoryError("it is full")) as sizes:
            connection = server.start_post("/score", json.dumps({"items": [ITEM]}).encode())
            until(lambda: sizes == [1])
        answer = connection.getresponse()
        assert answer.status == 503 and b"out of memory (it is full)" in answer.read()
        assert server.thread is not None
        server.thread.join(WAIT_S)
        assert isinstance(server.error, EngineDied)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"credit": "prm_min"}, "credit.kind=prm_min: needs step scores, but prm is null"),
        ({"credit": "first_error"}, "needs step scores"),
        ({"prm": "nowhere"}, "nowhere"),
    ],
)
def test_what_cannot_be_served_is_refused_at_the_start(keys: dict[str, Any], message: str) -> None:
    config = ServeRewardsConfig.model_validate(keys)
    address = ServerAddress(port=0)
    with pytest.raises((ConfigError, DataError), match=message):
        serve_rewards(
            config, address=address, limits=RequestLimits(), on_ready=lambda url, stop: stop()
        )


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"check": False}, "leaves no source of rewards"),
        ({"aggregate": "log_odds"}, "gives rewards outside"),
        ({"split": {"min_tokens": 3}}, "counts tokens of the policy"),
    ],
)
def test_settings_that_do_not_go_together(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ServeRewardsConfig.model_validate(keys)


def test_a_client_waits_for_a_server_that_is_not_there_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = RewardClient(f"http://127.0.0.1:{free_port()}")
    waits: list[float] = []
    monkeypatch.setattr(client_module, "time", SimpleNamespace(sleep=waits.append))
    with pytest.raises(RewardError, match="cannot be reached"):
        client.health()
    assert len(waits) == 7
    with pytest.raises(ValueError, match="must begin with http"):
        RewardClient("file:///etc/passwd")


def test_a_client_says_what_another_server_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client repeats the request twice first."""
    monkeypatch.setattr(client_module, "FIRST_WAIT_S", 0.001)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def send_bodies(*bodies: bytes) -> None:
            for body in bodies:
                connection, _ = listening.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(
                        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
                        % len(body)
                        + body
                    )

        client = RewardClient(f"http://127.0.0.1:{listening.getsockname()[1]}", timeout_s=WAIT_S)
        for body, message in [
            (b"<html>", "does not respond with JSON"),
            (b"[]", "holds no rewards"),
            (b'{"items": [{"reward": 1}]}', "holds no rewards"),
            (b'{"items": []}', "gave 0 rewards for 1"),
        ]:
            thread = threading.Thread(target=send_bodies, args=(body,) * 3)
            thread.start()
            with pytest.raises(RewardError, match=rf"{message}.* \(after 3 tries\)"):
                client.score([RewardItem("p", "c", "1")])
            thread.join(WAIT_S)
        thread = threading.Thread(target=send_bodies, args=(b"{", b'{"status": "ok"}'))
        thread.start()
        assert client.health() == {"status": "ok"}
        thread.join(WAIT_S)


def test_a_wrong_token_is_refused() -> None:
    with run_server(token="sesamé") as server:
        for token in (None, "sesame"):
            with pytest.raises(
                RewardError, match=r"refused the request \(401\): the API key is missing or wrong"
            ):
                server.client(token=token).health()
        status, _ = server.post(
            "/score", b"{}", authorization="Bearer sesamé".encode().decode("latin-1")
        )
        assert status == 400
