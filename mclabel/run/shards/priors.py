"""Priors of `posterior` that labels depend on: `priors/ID.json`, ID being a hash of the content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from mclabel.core.errors import DamagedFile
from mclabel.core.seeds import ID_LENGTH
from mclabel.run.shards.store import Store, damaged

FOLDER = "priors"


def priors_name(identity: str) -> str:
    """The file of priors with this id."""
    return f"{FOLDER}/{identity}.json"


def read_priors(store: Store, identity: str) -> bytes | None:
    """What was written as the priors of this id; None if there are none.

    Raises:
        DamagedFile: the content is another one.
    """
    content = store.read(priors_name(identity))
    if content is not None and hashlib.sha256(content).hexdigest()[:ID_LENGTH] != identity:
        raise damaged(store, priors_name(identity))
    return content


@contextmanager
def making_use_of(store: Store, identity: str) -> Iterator[None]:
    """Where an estimator reads priors: what it refuses is said to be this file.

    Raises:
        DamagedFile: the estimator has raised a `ValueError`.
    """
    try:
        yield
    except ValueError as error:
        fault = f"not what mclabel wrote ({error})"
        raise damaged(store, priors_name(identity), fault) from error


def missing_priors(store: Store, identity: str) -> DamagedFile:
    """The error for labels that depend on missing priors."""
    return DamagedFile(
        store.location,
        priors_name(identity),
        "missing, though labels depend on it",
        "Restore it from a copy: without it these labels cannot be regraded",
    )
