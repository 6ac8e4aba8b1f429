"""Who else works on an output: a sign of life that every driver keeps in it.

    drivers/ID.json    process, node and start of a driver, written again every `BEAT_S`

Two drivers on one output do no harm: each block is committed once, whoever is first. But they do
the work twice, so the second one says so, and while another is at work none removes what looks
left behind. The signs decide nothing else. A driver that was killed leaves its sign: it is known to
be dead at once on the same node, after `STALE_S` elsewhere, by the store's own clock.
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

from mclabel.data.digest import read_object, with_digest
from mclabel.data.store import Store
from mclabel.errors import DamagedFile, ShardError

logger = logging.getLogger(__name__)

FOLDER = "drivers"
BEAT_S = 20.0
STALE_S = 70.0


class DriverSign:
    """The sign of this driver, kept while the context lasts."""

    def __init__(self, store: Store) -> None:
        """Args:
        store: of the output.
        """
        self._store = store
        self._beats = Store(store.location, retry_s=BEAT_S / 2)  # the next beat is another try
        self._name = f"{FOLDER}/{uuid.uuid4().hex}.json"
        since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        said = {"process": os.getpid(), "node": platform.node(), "since": since}
        self._said = json.dumps(with_digest(said)).encode()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._live, name="driver-sign", daemon=True)

    def __enter__(self) -> DriverSign:
        self._store.create(self._name, self._said)
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
        """What other drivers that are alive say of themselves; signs of dead ones are removed."""
        self._store.replace(self._name, io.BytesIO(self._said))
        times = self._store.times(FOLDER)
        now = times.get(self._name)
        found = []
        for name in sorted(times):
            content = self._store.read(name) if name != self._name else None
            if content is None or now is None:
                continue
            if now - times[name] > timedelta(seconds=STALE_S) or self._is_dead(content):
                self._store.delete(name)
            else:
                found.append(content.decode(errors="replace")[:200])
        return found

    def warn(self) -> None:
        """Say who else works on the output."""
        if others := self.others():
            logger.warning(
                "%s: another driver is at work on this output (%s). Nothing is lost or written "
                "twice, but both do the same work: stop one of them",
                self._store.location,
                "; ".join(others),
            )

    def _is_dead(self, content: bytes) -> bool:
        """Whether a driver of this node is gone."""
        try:
            said, check = read_object(content)
            if check == "damaged":
                return False  # whose it is cannot be told: its age decides
            if said["node"] != platform.node():
                return False
            os.kill(int(said["process"]), 0)
        except (ProcessLookupError, ValueError, KeyError, TypeError):
            return True
        except PermissionError:
            return False
        return False

    def _live(self) -> None:
        while not self._over.wait(BEAT_S):
            try:
                self._beats.replace(self._name, io.BytesIO(self._said))
            except ShardError as error:
                logger.info("the sign of this driver could not be written: %s", error)
