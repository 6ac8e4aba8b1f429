"""Problems, solutions, golds and priors by URL, from a real S3 server that fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store

from mclabel.core.errors import DataError
from mclabel.data.leaks import read_leak_keys
from mclabel.data.readers.problems import read_problems
from mclabel.data.readers.rows import _download_file, download_if_url
from mclabel.run.shards import store as store_module
from tests.support.flaky_s3 import FlakyS3, flaky_s3, s3_environment
from tests.support.scripted_jobs import run_label_job


@pytest.fixture(scope="module")
def server() -> Iterator[FlakyS3]:
    with flaky_s3("inputs") as proxy:
        yield proxy


@pytest.fixture
def s3(server: FlakyS3, monkeypatch: pytest.MonkeyPatch) -> Iterator[FlakyS3]:
    for name, value in s3_environment(server).items():
        monkeypatch.setenv(name, value)
    server.fault = lambda method, path: "ok"
    _download_file.cache_clear()
    yield server
    _download_file.cache_clear()


def put(name: str, content: bytes) -> str:
    obstore.put(S3Store("inputs", client_options={"allow_http": True}), name, content)
    return f"s3://inputs/{name}"


def lines(rows: list[dict[str, object]]) -> bytes:
    return "\n".join(map(json.dumps, rows)).encode()


PROBLEMS: list[dict[str, object]] = [
    {"id": f"p{i}", "problem": f"P{i} [answer {i}]", "answer": str(i)} for i in range(20)
]


def test_given_solutions_by_url(s3: FlakyS3) -> None:
    source = put("problems.jsonl", lines(PROBLEMS))
    rows: list[dict[str, object]] = [
        {"problem_id": f"p{i}", "steps": ["Line 1 is sound.", f"\\boxed{{{i}}}"]} for i in range(20)
    ]
    path = put("solutions.jsonl", lines(rows))
    overrides = [f"problems.source={source}", f"solutions.path={path}", "policy.engine=scripted"]
    overrides += ["out=s3://inputs/runs/given", "ray.address=none", "estimator.kind=fixed"]
    assert run_label_job(overrides).counts["num_solutions"] == 20
    assert len(read_leak_keys([source])) == 20


def test_a_large_file_comes_in_pieces_and_once(
    s3: FlakyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_PIECE", 1000)
    content = lines(PROBLEMS * 3)
    source = put("large.jsonl", content)
    s3.asked.clear()
    assert download_if_url(source).read_bytes() == content
    # one HEAD request, and one per piece of 1,000 bytes
    assert len(s3.asked) == 1 + -(-len(content) // 1000)
    num_requests, problems = s3.num_requests, read_problems(source)
    assert len(list(problems)) == len(list(problems)) == 20
    assert s3.num_requests == num_requests


def test_a_file_that_changes_meanwhile_is_refused(
    s3: FlakyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_PIECE", 1000)
    source = put("changing.jsonl", lines(PROBLEMS * 3))
    gets = 0

    def fault(method: str, path: str) -> str:
        nonlocal gets
        gets += method == "GET"
        if gets == 2:
            gets += 1
            put("changing.jsonl", lines(PROBLEMS * 4))
        return "ok"

    s3.fault = fault  # type: ignore[assignment]
    with pytest.raises(DataError, match=r"changing\.jsonl: cannot be read:"):
        download_if_url(source)
    s3.fault = lambda method, path: "ok"
    assert download_if_url(source).read_bytes() == lines(PROBLEMS * 4)


def test_what_is_no_file(s3: FlakyS3, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"s3://inputs/none\.jsonl: no such file"):
        download_if_url("s3://inputs/none.jsonl")
    with pytest.raises(DataError, match=r"must name a file, as in s3://bucket"):
        download_if_url("s3://inputs")
    with pytest.raises(DataError, match=r"nowhere://x/y\.jsonl: cannot be read: .*store URL"):
        download_if_url("nowhere://x/y.jsonl")
    with pytest.raises(DataError, match=r"problems\.txt: the suffix must be \.jsonl"):
        read_problems(put("problems.txt", b"x"))
