"""Scores kept from one evaluation to its resumption."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from mclabel.policy.text import weights_fingerprint
from mclabel.prm.encode import EncodedSolution

T = TypeVar("T")


class ScoreCache:
    """A file for each scorer, valid for the same weights and the same solutions."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def scores(
        self,
        name: str,
        model: str,
        encoded: Sequence[EncodedSolution],
        compute: Callable[[Sequence[EncodedSolution]], list[T]],
    ) -> list[T]:
        """What `compute` gives, or gave before.

        Args:
            name: of the file.
            model: folder of the weights; scores of a Hugging Face name are not kept.
            encoded: what is scored.
            compute: one JSON-serialisable result a solution.
        """
        if not Path(model).is_dir():
            return compute(encoded)
        path = self._folder / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"
        key = _key(model, encoded)
        if path.is_file():
            kept = json.loads(path.read_text())
            if kept["key"] == key:
                return list(kept["scores"])
        found = compute(encoded)
        self._folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps({"scorer": name, "key": key, "scores": found}))
        partial.rename(path)
        return found


def _key(model: str, encoded: Sequence[EncodedSolution]) -> str:
    digest = hashlib.sha256(weights_fingerprint(Path(model)).encode())
    for one in encoded:
        digest.update(f"{one.ids}{one.num_prompt}{one.positions}".encode())
    return digest.hexdigest()
