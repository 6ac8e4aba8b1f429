"""A critic that asks in batches: each request is paid once, whatever fails or is killed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mclabel.core.errors import EngineError
from mclabel.engines import openai_batch_calls as calls
from mclabel.engines.openai_batch import Batches
from mclabel.engines.openai_batch_calls import Records
from mclabel.judge.opinions import OpinionRun
from tests.judge.test_critic_hosted import hosted
from tests.judge.test_judge_job import NUM_ROWS, answered, check, critic, run, write
from tests.support.batch_server import BatchServer
from tests.support.forked import Forked
from tests.support.hosted_server import KEY, HostedServer

ENGINE = "judge.policy.engine"
BATCH = (
    f"{ENGINE}.batch=true",
    *(f"{ENGINE}.batch_gather_s=0.1", f"{ENGINE}.batch_poll_s=0.005", f"{ENGINE}.retry_s=5"),
)
ONE_BLOCK = ("block_solutions=24",)
"""All requests come at once, however slow the machine is."""


def batch_server(**server: Any) -> BatchServer:
    return BatchServer(answer=answered, max_model_len=2000, **server)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "in.jsonl")


def is_paid_once(server: BatchServer) -> bool:
    return len(server.paid) == 2 * NUM_ROWS and set(server.paid.values()) == {1}


def sizes(server: BatchServer) -> list[int]:
    """Requests in each batch."""
    files = (server.files[one["input_file_id"]] for one in server.batches.values())
    return [len(file.splitlines()) for file in files]


def test_a_critic_asks_in_batches(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCH_KEY", KEY)
    out, key = tmp_path / "out", f"{ENGINE}.api_key_env=BATCH_KEY"
    with batch_server(key=KEY) as server:
        done = run(
            *critic(server, source, out, *BATCH, *ONE_BLOCK, f"{ENGINE}.batch_requests=20", key)
        )
        assert done.exit_code == 0, done.output
        assert is_paid_once(server)
        assert sizes(server) == [20, 20, 8]
        assert len(server.bodies) == 1  # to see that the server can do it
    found = check(out)
    with batch_server() as server:
        assert run(*critic(server, source, tmp_path / "one", f"{ENGINE}.retry_s=5")).exit_code == 0
        assert found.opinions == OpinionRun.read(str(tmp_path / "one")).opinions
    files = [path for path in out.rglob("*") if path.is_file()]
    assert not any(KEY.encode() in path.read_bytes() for path in files)


def test_expired_and_cancelled_batches_are_used_and_the_rest_is_asked_again(
    source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with batch_server() as server:
        server.endings += [("expired", 10), ("cancelled", 5)]
        done = run(*critic(server, source, tmp_path / "out", *BATCH, *ONE_BLOCK))
        assert done.exit_code == 0, done.output
        assert sizes(server) == [48, 38, 33] and is_paid_once(server)
    check(tmp_path / "out")
    assert "is expired: 10 of its 48 requests have answers" in caplog.text
    assert "other 33 are asked again in a new batch (71 since the start)" in caplog.text


def test_failed_requests_are_asked_again_or_are_failed_answers(
    source: Path, tmp_path: Path
) -> None:
    """As without batches: a busy server is asked again, a refusal is a failed answer."""
    with batch_server() as server:
        server.row_faults += [429, 500, 400]
        done = run(*critic(server, source, tmp_path / "out", *BATCH, *ONE_BLOCK))
        assert done.exit_code == 0, done.output
        output = " ".join(done.output.split())
        assert 'refuses the request: {"error": "no"} (HTTP 400)' in output
        assert sizes(server)[0] == 48 and sum(sizes(server)[1:]) >= 2
        assert set(server.paid.values()) == {1}


@pytest.mark.parametrize(
    ("ending", "more", "message"),
    [
        (("failed", 0), (), 'has failed: [{"code": "token_limit_exceeded"'),
        (("expired", 0), (), "3 batches in a row brought no answer"),
        (("never", 0), (f"{ENGINE}.batch_wait_hours=1e-9",), "waiting on; nothing in it"),
    ],
)
def test_batches_that_bring_nothing_stop_the_job_which_can_go_on(
    source: Path, tmp_path: Path, ending: tuple[str, int], more: tuple[str, ...], message: str
) -> None:
    with batch_server() as server:
        server.endings += [ending] * 3
        command = critic(server, source, tmp_path / "out", *BATCH, *ONE_BLOCK)
        done = run(*command, *more)
        assert done.exit_code == 2, done.output
        assert message.replace("waiting", "wait") in " ".join(done.output.split())
        server.endings.clear()
        for batch in server.batches.values():
            batch["ending"] = batch["ending"] if batch["status"] == ending[0] else None
        num_before = len(server.batches)
        assert run(*command).exit_code == 0
        assert is_paid_once(server)
        assert len(server.batches) == num_before + (ending[0] != "never")
    check(tmp_path / "out")
    assert not list((tmp_path / "out" / "batches").iterdir())


def test_a_server_without_batches_is_refused_in_one_line(source: Path, tmp_path: Path) -> None:
    with batch_server(has_batches=False) as server:
        done = run(*critic(server, source, tmp_path / "out", *BATCH))
    assert done.exit_code == 2
    assert "judge.policy.engine.batch=true: http://127.0.0.1" in done.output
    assert "has no Batch API" in " ".join(done.output.split())
    with batch_server() as server:
        done = run(
            *critic(server, source, tmp_path / "out", *BATCH),
            f"{ENGINE}.endpoints=['{server.url}', '{server.url}']",
        )
    assert "batch=true: needs one endpoint, but endpoints has 2" in " ".join(done.output.split())


def test_an_answer_that_gets_lost_makes_no_second_batch(source: Path, tmp_path: Path) -> None:
    with batch_server() as server:
        server.lose_creations = 1
        done = run(*critic(server, source, tmp_path / "out", *BATCH, *ONE_BLOCK))
        assert done.exit_code == 0, done.output
        assert len(server.batches) == 1 and is_paid_once(server)


@pytest.fixture(params=["openai", "hosted"])
def either(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> tuple[BatchServer, Callable[..., list[str]]]:
    """A server of batches for an engine, and what makes the command of a critic that asks it."""
    if request.param == "openai":
        return batch_server(), critic
    monkeypatch.setenv("HOSTED_KEY", KEY)
    return HostedServer(answered), hosted


@pytest.mark.slow
@pytest.mark.parametrize("place", ["upload", "asked", "created", "noted", "polled", "read"])
def test_stopped_at_any_step_each_request_is_paid_once(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    either: tuple[BatchServer, Callable[..., list[str]]],
    place: str,
) -> None:
    """A step raises once it is done, and the job ends there."""

    def stop(owner: Any, name: str) -> None:
        step = getattr(owner, name)

        async def stopping(*arguments: Any) -> Any:
            await step(*arguments)
            raise EngineError("stopped here")

        patch.setattr(owner, name, stopping)

    def stop_after_creation(*arguments: Any) -> Any:
        create = creating(*arguments)

        async def stopping(client: Any) -> Any:
            await create(client)
            raise EngineError("stopped here")

        return stopping

    creating = calls.creating
    out, (server, asking) = tmp_path / "out", either
    with server, monkeypatch.context() as patch:
        match place:
            case "upload" | "polled":
                stop(calls, {"upload": "upload", "polled": "retrieve"}[place])
            case "asked" | "noted":
                stop(Records, {"asked": "note_asked", "noted": "note_batch"}[place])
            case "created":
                patch.setattr(calls, "creating", stop_after_creation)
            case "read":
                stop(Batches, "_download")
        command = asking(server, source, out, *BATCH, *ONE_BLOCK)
        done = run(*command)
        assert done.exit_code == 2 and "stopped here" in done.output
        patch.undo()
        assert run(*command).exit_code == 0
        assert is_paid_once(server) and len(server.batches) == 1
    check(out)


@pytest.mark.slow
def test_killed_ten_times_each_request_is_paid_once(
    source: Path, tmp_path: Path, either: tuple[BatchServer, Callable[..., list[str]]]
) -> None:
    server, asking = either
    rng, out = random.Random(0), tmp_path / "out"
    with server:
        more = (f"{ENGINE}.batch_requests=4", "journal_s=0.05", f"{ENGINE}.batch_poll_s=0.05")
        command = asking(server, source, out, *BATCH, *more)
        num_kills = 0
        for _ in range(10):
            seen = server.num_calls
            job = Forked(*command, HOSTED_KEY=KEY)
            deadline = time.monotonic() + 240
            last = seen + rng.randint(2, 8)
            while job.poll() is None and server.num_calls < last:
                assert time.monotonic() < deadline
                time.sleep(0.001)
            num_kills += job.poll() is None
            job.kill()
            job.communicate()
        done = run(*command)
        assert done.exit_code == 0, done.output
        assert num_kills == 10 and is_paid_once(server)
    check(out)
