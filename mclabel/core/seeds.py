"""Computes ids and seeds that depend only on content, not on when and where they are computed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from copy import copy

ID_LENGTH = 16  # hex digits: 64 bits, a collision in 10M ids has odds of about 3e-6


def content_id(*parts: object) -> str:
    """Return a 16-digit hexadecimal id of JSON-serialisable parts."""
    return hashlib.sha256(canonical_json(parts)).hexdigest()[:ID_LENGTH]


def canonical_json(content: object) -> bytes:
    """Encode JSON-serialisable content so that equal content gives equal bytes, from which ids are
    hashed.
    """
    return json.dumps(content, ensure_ascii=True, sort_keys=True, separators=(",", ":")).encode()


def prefix_id(problem_id: str, ids: Sequence[int]) -> str:
    """Return the id of a prefix, from the problem's id and the prefix's token ids."""
    return PrefixHash(problem_id).extend(ids).id


def hash_text_prefixes(problem_id: str, texts: Sequence[str]) -> list[str]:
    """Return, for each step, the id of the prefix that ends with it, computed from the texts of
    steps.
    """
    prefixes, running = [], hashlib.sha256(canonical_json(("text prefix", problem_id, ""))[:-2])
    for text in texts:
        running.update(canonical_json(text)[1:-1])
        finished = running.copy()
        finished.update(b'"]')
        prefixes.append(finished.hexdigest()[:ID_LENGTH])
    return prefixes


class PrefixHash:
    """Hash of a prefix that can be extended to longer prefixes without hashing the prefix again."""

    __slots__ = ("_is_empty", "_running")

    def __init__(self, problem_id: str) -> None:
        """Create the hash of the prefix without steps."""
        self._running = hashlib.sha256(canonical_json(("prefix", problem_id, []))[:-2])
        self._is_empty = True

    @property
    def id(self) -> str:
        """The prefix's id: `content_id` of the problem's id and all token ids."""
        finished = self._running.copy()
        finished.update(b"]]")
        return finished.hexdigest()[:ID_LENGTH]

    def extend(self, ids: Sequence[int]) -> PrefixHash:
        """Return the hash of this prefix extended by token ids."""
        other = copy(self)
        other._running = self._running.copy()
        if len(ids):
            comma = b"" if self._is_empty else b","
            other._running.update(comma + ",".join(map(str, ids)).encode())
            other._is_empty = False
        return other


def derive_sampling_seed(
    run_seed: int, problem_id: str, prefix: str, index: int, *, completer: str = ""
) -> int:
    """Return the seed of one completion, in [0, 2**63).

    Seeds are hashed instead of consecutive, because an engine that derives the seeds of n
    completions as s, s+1, ... would repeat the completions of the next request. Each completer
    (model that samples rollouts) gets other seeds, because models with equal seeds would make
    correlated errors.
    """
    parts = [run_seed, problem_id, prefix, index, *([completer] if completer else [])]
    payload = ":".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.sha256(payload).digest()[:8], "big") >> 1


def derive_engine_seed(run_seed: int, incarnation: str) -> int:
    """Return the seed of an engine that accepts no seed per completion, in [0, 2**31).

    Engines with equal seeds would sample the same completions.

    Args:
        run_seed: seed of the job.
        incarnation: id that is unique to this start of this engine.
    """
    payload = f"engine:{run_seed}:{incarnation}".encode()
    return int.from_bytes(hashlib.sha256(payload).digest()[:4], "big") >> 1
