"""Fixtures: a vLLM server for the tests of several files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.continuation import chat_model
from tests.support.serving import served_policy

KEY = "sk-local-4711"


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the folder of the bundled policy with a chat template."""
    return chat_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def served(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the base URL of an OpenAI-compatible server, which needs a key and never logs it."""
    log = tmp_path_factory.mktemp("server") / "log"
    with served_policy(model, log, key=KEY) as address:
        yield address
    assert KEY not in log.read_text()


@pytest.fixture
def url(served: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the server's URL; its key is in `LOCAL_KEY`."""
    monkeypatch.setenv("LOCAL_KEY", KEY)
    return served
