"""Our servers in a thread, for tests that inspect them while clients send requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import pytest

WAIT_S = 120.0

T = TypeVar("T")


@dataclass
class InThread(Generic[T]):
    """A server in a separate thread."""

    url: str = ""
    parts: list[T] = field(default_factory=list)
    """Instances of the inspected class that the server has made."""
    error: BaseException | None = None
    thread: threading.Thread | None = None
    stop: Callable[[], None] = lambda: None

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2].partition("/")[0])


R = TypeVar("R", bound=InThread[Any])


@contextmanager
def in_thread(
    running: R,
    serve: Callable[[Callable[[str, Callable[[], None]], None]], None],
    *,
    part: type[Any],
    name: str,
) -> Iterator[R]:
    """Serve until the context ends.

    Args:
        running: record that receives the server's URL, parts and error.
        serve: function that serves. It gets a callback for the URL and the function that stops it.
        part: class of the parts that are recorded.
        name: dotted name under which the server looks up this class.
    """
    ready = threading.Event()

    class Seen(part):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            running.parts.append(self)

    def on_ready(url: str, stop: Callable[[], None]) -> None:
        running.url, running.stop = url, stop
        ready.set()

    def run() -> None:
        try:
            serve(on_ready)
        except BaseException as error:
            running.error = error
        ready.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name, Seen)
        running.thread = threading.Thread(target=run, daemon=True)
        running.thread.start()
        assert ready.wait(WAIT_S)
        assert running.url, running.error
        try:
            yield running
        finally:
            running.stop()
            running.thread.join(WAIT_S)
            assert not running.thread.is_alive()


def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)
