"""Files of a training's checkpoint that cannot be resumed from: one message names each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mclabel.errors import TrainingError
from mclabel.prm.training.checkpoint import check_trainer_files


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("trainer_state.json", b"\x80\x04\xff", "holds no state of a training (UnicodeDecodeError"),
        ("trainer_state.json", b"[1]", "holds no state of a training (TypeError"),
        ("trainer_state.json", b'{"other": 1}', "holds no state of a training (TypeError"),
        ("trainer_state.json", b'{"global_step": "1"}', "global_step='1' must be of type int"),
        ("scaler.pt", b"", "is the state of a loss scaler, which this training does not use"),
    ],
)
def test_a_damaged_file_of_the_trainer_is_named(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / "trainer_state.json").write_text('{"global_step": 1}')
    check_trainer_files(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TrainingError, match=re.escape(f"{tmp_path / name}: {said}")) as refused:
        check_trainer_files(tmp_path)
    assert f"Remove the folder {tmp_path} to resume" in str(refused.value)
