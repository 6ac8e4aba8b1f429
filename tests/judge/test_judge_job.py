"""Judging jobs write each opinion once, also after kills, and send no request twice."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from mclabel.judge.base import UNKNOWN_VOTE
from mclabel.judge.opinions import OpinionRun
from mclabel.run.shards.store import Store
from mclabel.run.verify.run import verify
from tests.support.commands import run_verb
from tests.support.openai_server import Server

NUM_ROWS = 24
CRITIC = (
    *("judge=critic", "judge.policy.model=arith:policy", "judge.policy.engine=openai"),
    *("judge.max_tokens=60", "judge.least_votes=2"),
    *("judge.most_votes=4", "block_solutions=2", "judge.policy.engine.retry_s=0"),
)


def first_error(number: int) -> int | None:
    """Return the first error that the scripted critic names in a row."""
    return (None, 0, 1, 2)[number % 4]


def answer_prompt(prompt: str) -> str:
    """Return the answer to a prompt for the row that its steps name."""
    match = re.search(r"row (\d+),", prompt)
    error = first_error(int(match[1])) if match else None
    return f"I looked at it.\n\\boxed{{{-1 if error is None else error}}}"


def write_solutions(path: Path, count: int = NUM_ROWS) -> Path:
    rows = [
        {
            "problem": f"A boy has row {number}, of apples.",
            "steps": ["He has one.\n", "He has two.\n", "The answer is 2."],
            "answer": "2",
        }
        for number in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def make_command(server: Server, source: Path, out: Path, *more: str) -> list[str]:
    endpoint = f"judge.policy.engine.endpoints=['{server.url}']"
    return ["judge", str(source), "-o", str(out), *CRITIC, endpoint, *more]


def check_opinions(out: Path, count: int = NUM_ROWS) -> OpinionRun:
    """Check that each row has the scripted opinion, from two votes requested once each."""
    opinion_run = OpinionRun.read(str(out))
    assert sorted(map(int, opinion_run.opinions)) == list(range(1, count + 1))
    for name, opinion in opinion_run.opinions.items():
        error = first_error(int(name) - 1)
        assert (opinion.is_known, opinion.first_error) == (True, error)
        assert opinion.votes == (3 if error is None else error,) * 2
        assert sorted(answer.number for answer in opinion.answers) == [0, 1]
    assert verify(Store(str(out))).is_sound
    return opinion_run


def test_a_critic_on_a_real_server_gives_one_opinion_a_solution(tmp_path: Path) -> None:
    source, out = write_solutions(tmp_path / "in.jsonl", 8), tmp_path / "out"
    with Server(answer=answer_prompt, max_model_len=2000) as server:
        result = run_verb(make_command(server, source, out))
        assert "8 solutions judged: an error in 6, unknown 0" in " ".join(result.output.split())
        assert len(server.bodies) == 2 * 8 + 1  # plus a probe of the server
        run_verb(make_command(server, source, out))
        assert len(server.bodies) == 2 * 8 + 1
    opinion_run = check_opinions(out, 8)
    assert opinion_run.claim == "where" and opinion_run.judge == "critic"
    metadata = json.loads((out / "run.json").read_text())["config"]
    assert metadata["judge"]["policy"]["model"].startswith("weights:")


def test_failures_are_unknowns_and_only_they_are_asked_again(tmp_path: Path) -> None:
    source, out = write_solutions(tmp_path / "in.jsonl", 6), tmp_path / "out"
    with Server(answer=answer_prompt, max_model_len=2000) as server:
        run_verb(make_command(server, source, tmp_path / "probe", "budget.max_tokens=1"), code=3)
        plain = server._reply

        def refuse_row(request: Any, body: dict[str, Any], is_chat: bool) -> Any:
            if body["max_tokens"] > 1:
                return web.json_response({"error": "overloaded"}, status=500)
            return plain(request, body, is_chat)

        server._reply = refuse_row  # type: ignore[method-assign]
        message = " ".join(run_verb(make_command(server, source, out), code=1).output.split())
        assert "6 solutions judged: an error in 0, unknown 6" in message
        assert "gave no response within 0 s" in message
        failed = OpinionRun.read(str(out))
        assert {opinion.votes for opinion in failed.opinions.values()} == {(UNKNOWN_VOTE,) * 4}
        server._reply = plain  # type: ignore[method-assign]
        again = tmp_path / "again"
        run_verb(make_command(server, source, again, f"answers={out}"))
    check_opinions(again, 6)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a source and a run of opinions on it, for tests that only read."""
    folder = tmp_path_factory.mktemp("recorded")
    source, out = write_solutions(folder / "in.jsonl", 2), folder / "out"
    with Server(answer=answer_prompt, max_model_len=2000) as server:
        run_verb(make_command(server, source, out, NAMED))
    return source, out


@pytest.fixture(scope="module")
def other_server() -> Iterator[Server]:
    """Yield another server, which has the same model and one more."""
    with Server(answer="\\boxed{-1}", max_model_len=2000, names=("policy", "other")) as server:
        yield server


NAMED = "judge.policy.engine.model=policy"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("judge.policy.model=arith:strong", "judge.policy.model: 'weights:"),
        ("judge.policy.temperature=0.3", "judge.policy.temperature: 1.0 there, 0.3 here"),
        ("judge.policy.top_p=1", "judge.policy.top_p: 0.9 there, 1.0 here"),
        ("judge.policy.stop=[X]", "judge.policy.stop"),
        ("judge.policy.template_variables={a: 1}", "judge.policy.template_variables: [] there"),
        ("seed=7", "seed: 0 there, 7 here"),
        ("judge.policy.engine.model=other", "judge.policy.engine.model: 'policy' there, 'other'"),
    ],
)
def test_answers_of_another_model_or_sampling_are_refused(
    tmp_path: Path, recorded: tuple[Path, Path], other_server: Server, change: str, words: str
) -> None:
    source, out = recorded
    command = make_command(
        other_server, source, tmp_path / "again", f"answers={out}", NAMED, change
    )
    message = " ".join(run_verb(command, code=2).output.split())
    assert "come from another model, or were sampled" in message and words in message, message
    assert not (tmp_path / "again").exists()


def test_on_another_server_answers_of_the_same_model_count(
    tmp_path: Path, recorded: tuple[Path, Path], other_server: Server
) -> None:
    source, out = recorded
    more = ("--answers", str(out), "judge.least_votes=3", NAMED)
    num_requests = len(other_server.bodies)
    run_verb(make_command(other_server, source, tmp_path / "moved", *more))
    opinions = OpinionRun.read(str(tmp_path / "moved")).opinions.values()
    assert (
        len(other_server.bodies) - num_requests
        == 1 + sum(len(opinion.answers) - 2 for opinion in opinions)
        > 1
    )


def test_a_cut_answer_is_asked_once_more_with_twice_the_tokens(tmp_path: Path) -> None:
    source, out = write_solutions(tmp_path / "in.jsonl", 1), tmp_path / "out"
    with Server(answer=answer_prompt, max_model_len=2000) as server:
        cut = ("judge.max_tokens=4", "judge.least_votes=1", "judge.most_votes=1")
        run_verb(make_command(server, source, out, *cut), code=1)
        limits = [body["max_tokens"] for body in server.bodies[1:]]
    assert limits == [4, 8]
    (opinion,) = OpinionRun.read(str(out)).opinions.values()
    assert (opinion.is_known, opinion.first_error) == (False, None)
    assert (opinion.reason, opinion.votes) == ("truncated", (UNKNOWN_VOTE,))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("judge=critik",), "did you mean critic"),
        (("judge=scorer", "judge.prm=nowhere", "judge.threshold=0.5"), "nowhere"),
        (
            ("judge=scorer", "judge.prm=x"),
            "are both missing. Give one of the two: judge.",
        ),
        (("judge=critic", "judge.prompt=lessen"), "neither a built-in prompt nor a template"),
        (("judge=critic",), "judge.policy.model: is not set"),
        (("judge=critic", "judge.policy.model=/no/x"), "mclabel: judge.policy.model='/no/x'"),
        (("judge=critic", "judge.policy.max_live=4"), "judge.policy.max_live: not a setting"),
        (("judge=critic", "judge.least_votes=9"), "least_votes=9"),
        (("judge.threshold=1",), "threshold"),
        (("answers=nowhere",), "nowhere"),
    ],
)
def test_a_judge_without_what_it_needs_ends_with_one_clear_word(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    source, out = write_solutions(tmp_path / "in.jsonl", 1), tmp_path / "out"
    result = run_verb(["judge", str(source), "-o", str(out), *arguments], code=2)
    assert words in " ".join(result.output.split())
    assert not out.exists()
