"""A critic that sends requests in batches pays each request once, despite failures and kills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mclabel.core.errors import EngineError
from mclabel.engines import openai_batch_calls as calls
from mclabel.engines.openai_batch import FILE_POLLS, LOST_POLLS
from mclabel.engines.openai_batch_answers import AnswerFile
from mclabel.engines.openai_batch_calls import BatchRecords
from mclabel.judge.opinions import OpinionRun
from tests.judge.test_critic_hosted import hosted
from tests.judge.test_judge_job import NUM_ROWS, answered, check, critic, run, write
from tests.support.batch_server import FILE_FAULTS, BatchServer
from tests.support.hosted_server import KEY, HostedServer

ENGINE = "judge.policy.engine"
BATCH = (
    f"{ENGINE}.batch=true",
    *(f"{ENGINE}.batch_poll_s=0.2", f"{ENGINE}.retry_s=5"),
)
ONE_BLOCK = ("block_solutions=24",)
"""Settings with a single block, so that all requests are sent at once on slow machines too."""


def batch_server(**server: Any) -> BatchServer:
    return BatchServer(answer=answered, max_model_len=2000, **server)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "in.jsonl")


def is_paid_once(server: BatchServer) -> bool:
    return len(server.paid) == 2 * NUM_ROWS and set(server.paid.values()) == {1}


def sizes(server: BatchServer) -> list[int]:
    """Return the number of requests in each batch."""
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
        assert len(server.bodies) == 1  # a probe of whether the server offers batches
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
    assert "remaining 33 requests are sent again in a new batch" in caplog.text


@pytest.mark.parametrize(
    ("ending", "more", "message"),
    [
        (("failed", 0), (), 'has failed: [{"code": "token_limit_exceeded"'),
        (("expired", 0), (), "3 batches in a row had no answers"),
        (
            ("never", 0),
            (f"{ENGINE}.batch_wait_hours=1e-9",),
            "waiting; no request in the batch is sent twice",
        ),
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


BROKEN = {"code": "server_error", "message": "The model broke."}
LIMIT = {"code": "rate_limit_exceeded", "message": "Too many."}
OK = {"status_code": 200}


@pytest.mark.parametrize(
    ("row", "num_asked", "reason"),
    [
        ({"response": None, "error": BROKEN}, 1, "The model broke. (server_error)"),
        (
            {"response": None, "error": LIMIT},
            3,
            "not processed in 3 batches. The server's last message: Too",
        ),
        ({"response": {"status_code": 503}, "error": {"error": BROKEN}}, 3, "The model broke."),
        ({"response": {"status_code": 400}, "error": {"error": BROKEN}}, 1, "The model broke."),
        ({"response": {**OK, "body": {"error": BROKEN}}, "error": None}, 1, "The model broke."),
        ({"response": {**OK, "body": {"choices": 5}}, "error": None}, 1, "has no choices"),
        ({"response": {**OK, "body": None}, "error": None}, 1, "answers with an error: null"),
        ({"custom_id": "another"}, 1, "have no row for the request"),
    ],
)
def test_a_row_with_an_error_is_a_failed_answer_and_the_job_goes_on(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    row: dict[str, Any],
    num_asked: int,
    reason: str,
) -> None:
    """Only a request that was not processed is repeated, in at most three batches."""
    monkeypatch.setenv("HOSTED_KEY", KEY)
    with HostedServer(answered) as server:
        server.row_errors["row 5,"] = row
        done = run(*hosted(server, source, tmp_path / "out", *BATCH, *ONE_BLOCK))
    assert done.exit_code == 0, done.output
    num_failed = 4  # all votes on one solution, each in its own request
    assert sorted(server.asked.values()) == [1] * 2 * (NUM_ROWS - 1) + [num_asked] * num_failed
    opinions = OpinionRun.read(str(tmp_path / "out")).opinions
    assert [name for name, one in opinions.items() if not one.is_known] == ["6"]
    assert reason in opinions["6"].reason


GONE = {"message": "No batch found."}


@pytest.mark.parametrize(
    ("queue", "fault", "num_tries", "ending", "words"),
    [
        *(("lost_files", one, FILE_POLLS, None, "output_file_id file-1") for one in FILE_FAULTS),
        ("lost_files", "unnamed", FILE_POLLS, None, "the output files lack them"),
        ("lost_files", "unnamed", FILE_POLLS, ("expired", 10), "10 of its answers cannot be read"),
        ("lost_polls", {"error": GONE}, LOST_POLLS, None, "No batch found."),
        ("lost_polls", {"id": "batch-0", **GONE}, LOST_POLLS, None, "was not found in"),
    ],
    ids=str,
)
def test_what_cannot_be_read_stops_the_job_is_read_later_and_never_paid_again(
    source: Path,
    tmp_path: Path,
    queue: str,
    fault: Any,
    num_tries: int,
    ending: tuple[str, int] | None,
    words: str,
) -> None:
    with batch_server() as server:
        command = critic(server, source, tmp_path / "out", *BATCH, *ONE_BLOCK)
        server.endings += [ending] if ending else []
        faults = getattr(server, queue)
        faults += [fault] * 10_000
        done = run(*command)
        assert done.exit_code == 2, done.output
        output = " ".join(done.output.split())
        assert "the batch batch-0 at http" in output and words in output
        assert len(faults) == 10_000 - num_tries
        faults.clear()
        faults += [fault] * 2  # fewer than stop the job
        assert run(*command).exit_code == 0
        assert sizes(server) == ([48, 38] if ending else [48]) and is_paid_once(server)
    check(tmp_path / "out")


def test_a_list_of_batches_that_is_an_error_makes_no_second_batch(
    source: Path, tmp_path: Path
) -> None:
    with batch_server() as server:
        server.lose_creations = 1
        server.lost_lists += [None, {"error": {"message": "Busy.", "code": 503}}, {"x": 1}]
        done = run(*critic(server, source, tmp_path / "out", *BATCH, *ONE_BLOCK))
        assert done.exit_code == 0, done.output
        assert not server.lost_lists
        assert len(server.batches) == 1 and is_paid_once(server)


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
    assert "batch=true: needs exactly one endpoint, but endpoints has 2" in " ".join(
        done.output.split()
    )


@pytest.mark.slow
@pytest.mark.parametrize("place", ["upload", "asked", "created", "noted", "polled", "read"])
def test_stopped_at_any_step_each_request_is_paid_once(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    """The patched step raises after it is done, which ends the job."""

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

    creating = calls.make_batch_creator
    out, server = tmp_path / "out", batch_server()
    with server, monkeypatch.context() as patch:
        match place:
            case "upload" | "polled":
                stop(calls, {"upload": "upload", "polled": "retrieve"}[place])
            case "asked" | "noted":
                stop(BatchRecords, {"asked": "note_asked", "noted": "note_batch"}[place])
            case "created":
                patch.setattr(calls, "make_batch_creator", stop_after_creation)
            case "read":
                stop(AnswerFile, "read")
        command = critic(server, source, out, *BATCH, *ONE_BLOCK)
        done = run(*command)
        assert done.exit_code == 2 and "stopped here" in done.output
        patch.undo()
        assert run(*command).exit_code == 0
        assert is_paid_once(server) and len(server.batches) == 1
    check(out)
