"""Who else works on an output: a sign of life that every driver keeps in it.

    drivers/ID.json    process, node and start of a driver, written again every `BEAT_S`

Two drivers on one output do no harm: each block is committed once, whoever is first. But they do
the work twice, so the second one warns, and while another is at work none removes what looks left
behind. The signs decide nothing else. A driver that was killed leaves its sign: it is known to be
dead at once on the same node, after `STALE_S` elsewhere, by the store's own clock.
"""

from __future__ import annotations

import io
import json
import logging
import os
import platform
import threading
import uuid
from datetime import UTC, datetime, timedelta
from types import TracebackType

from mclabel.core.boundary import clipped
from mclabel.core.errors import DamagedFile, ShardError
from mclabel.run.shards.digest import read_object, with_digest
from mclabel.run.shards.store import Store

logger = logging.getLogger(__name__)

FOLDER = "drivers"
BEAT_S = 20.0
STALE_S = 70.0


class DriverSign:
    """The sign of this driver, kept while the context lasts."""

    def __init__(self, store: Store) -> None:
        """Prepare a sign, which is written when the context begins.

        Args:
            store: of the output.
        """
        self._store = store
        self._beats = Store(store.location, retry_s=BEAT_S / 2)  # the next beat is another try
        self._name = f"{FOLDER}/{uuid.uuid4().hex}.json"
        since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        content = {"process": os.getpid(), "node": platform.node(), "since": since}
        self._content = json.dumps(with_digest(content)).encode()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._live, name="driver-sign", daemon=True)

    def __enter__(self) -> DriverSign:
        self._store.create(self._name, self._content)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()  # a write under way would make the sign anew, or be cut off by the exit
        fails = isinstance(error, ShardError) and not isinstance(error, DamagedFile)
        if not fails:  # a store that fails need not be asked again
            self._store.delete(self._name)

    def others(self) -> list[str]:
        """Other drivers that are alive, in words; the signs of dead ones are removed."""
        self._store.replace(self._name, io.BytesIO(self._content))
        times = self._store.times(FOLDER)
        now = times.get(self._name)
        signs = []
        for name in sorted(times):
            content = self._store.read(name) if name != self._name else None
            if content is None or now is None:
                continue
            if now - times[name] > timedelta(seconds=STALE_S) or self._is_dead(content):
                self._store.delete(name)
            else:
                signs.append(_words(content))
        return signs

    def warn(self) -> None:
        """Warn if another driver works on the output."""
        if others := self.others():
            logger.warning(
                "%s: another process runs a job on this output: %s. Nothing is lost or written "
                "twice, but both do the same work: stop one of them",
                self._store.location,
                "; ".join(others),
            )

    def _is_dead(self, content: bytes) -> bool:
        """Whether a driver of this node is gone."""
        try:
            sign, check = read_object(content)
            if check != "sound":
                return False  # nobody knows whose it is: its age decides
            if sign["node"] != platform.node():
                return False
            os.kill(int(sign["process"]), 0)
        except (ProcessLookupError, ValueError, KeyError, TypeError, OverflowError):
            return True
        except PermissionError:
            return False
        return False

    def _live(self) -> None:
        while not self._over.wait(BEAT_S):
            try:
                self._beats.replace(self._name, io.BytesIO(self._content))
            except ShardError as error:
                logger.info("the sign of this driver could not be written: %s", error)


def _words(content: bytes) -> str:
    """Which process a sign is of; a sign that cannot be read says only that there is one."""
    try:
        sign, _ = read_object(content)
        words = f"process {sign['process']} on {sign['node']}, since {sign['since']}"
    except (ValueError, KeyError, TypeError):
        return "a process whose sign cannot be read"
    return clipped(words)
