"""Batches of the `openai` engine, for one engine and for several engines of a run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mclabel.core.errors import EngineError
from mclabel.engines import PolicySettings, openai_batch
from mclabel.engines.loading import mark_start
from mclabel.engines.openai import OpenAIEngine
from mclabel.run.shards.store import Store
from tests.support.batch_server import BatchServer
from tests.support.openai_server import ANSWER


@asynccontextmanager
async def started(
    server: BatchServer, store: Store | None, **settings: Any
) -> AsyncIterator[OpenAIEngine]:
    own = {"batch_poll_s": 0.02, "retry_s": 5.0, **settings}
    engine = OpenAIEngine.Settings(endpoints=[server.url], batch=True, **own)
    policy = PolicySettings(model="arith:policy", engine=engine, max_tokens=100)
    found = OpenAIEngine(policy)
    with mark_start(store):
        await found.start()
    try:
        yield found
    finally:
        await found.close()


async def ask(engine: OpenAIEngine, *numbers: int, seed: int = 0) -> list[str]:
    asked = (engine.sample(engine.prompt_ids(f"What is 1 + {n}?"), (), seed=seed) for n in numbers)
    return [completion.text for completion in await asyncio.gather(*asked)]


def ids(server: BatchServer) -> list[list[str]]:
    """Return the ids of the requests in each batch."""
    files = [server.files[one["input_file_id"]] for one in server.batches.values()]
    return [[json.loads(line)["custom_id"] for line in file.splitlines()] for file in files]


def test_equal_requests_are_asked_once_and_seeds_make_them_differ(tmp_path: Path) -> None:
    async def run(server: BatchServer) -> None:
        async with started(server, Store(str(tmp_path))) as engine:
            assert await ask(engine, 1, 1, 2) == [ANSWER] * 3
            assert [len(one) for one in ids(server)] == [2]
            await ask(engine, 1)  # its answer is already there
            assert len(server.batches) == 1
            await ask(engine, 1, seed=1)
            assert [len(one) for one in ids(server)] == [2, 1]

    with BatchServer() as server:
        asyncio.run(run(server))
    assert len(server.paid) == 3 and set(server.paid.values()) == {1}


def test_files_end_at_the_limit_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(server: BatchServer) -> None:
        monkeypatch.setattr(openai_batch, "BATCH_BYTES", 2500)
        async with started(server, Store(str(tmp_path))) as engine:
            await ask(engine, *range(9))
        files = [server.files[one["input_file_id"]] for one in server.batches.values()]
        assert len(files) > 1 and all(len(file) <= 2500 for file in files)
        monkeypatch.setattr(openai_batch, "BATCH_BYTES", 100)
        async with started(server, Store(str(tmp_path))) as engine:
            with pytest.raises(EngineError, match="a batch can have at most 100"):
                await ask(engine, 10)

    with BatchServer() as server:
        asyncio.run(run(server))


def test_an_engine_finds_what_another_that_died_has_asked(tmp_path: Path) -> None:
    """The other engine starts before the run assigns the blocks to it."""

    async def run(server: BatchServer) -> None:
        store = Store(str(tmp_path))
        async with started(server, store) as other:
            async with started(server, store) as dying:
                server.endings.append(("never", 0))
                waiting = asyncio.create_task(ask(dying, 1, 2))
                while not list(tmp_path.glob("batches/*.batch.json")):
                    await asyncio.sleep(0.005)
                waiting.cancel()
            for batch in server.batches.values():
                batch["ending"] = None
            assert await ask(other, 1, 2, 3) == [ANSWER] * 3
        assert [len(one) for one in ids(server)] == [2, 1]

    with BatchServer() as server:
        asyncio.run(run(server))
    assert len(server.paid) == 3 and set(server.paid.values()) == {1}


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    async def run(server: BatchServer) -> None:
        async with started(server, Store(str(tmp_path))):
            pass

    (tmp_path / "batches").mkdir()
    (tmp_path / "batches" / "1.asked.json").write_text('{"file": "file-1", "requ')
    with (
        BatchServer() as server,
        pytest.raises(EngineError, match=r"batches/1\.asked\.json of the run: the file is damaged"),
    ):
        asyncio.run(run(server))
