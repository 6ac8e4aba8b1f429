"""Ends vLLM's processes with the process that started their engine, also where that is killed.

vLLM's engine process waits for requests, and does not notice that nobody is left to send one: it
would hold its memory until somebody ends it. vLLM takes a class that it adds to the class of its
workers (`worker_extension_cls`). A worker lives in the engine process, or is its child.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import threading
from typing import Any, Self

logger = logging.getLogger(__name__)

OWNER = "MCLABEL_ENGINE_OWNER"
"""Environment variable with the id of the process that started the engine."""


class EndsWithOwner:
    """A base of vLLM's workers: one that is made watches the owner from then on."""

    def __new__(cls, *arguments: Any, **named: Any) -> Self:
        """Begin to watch, before the worker loads its model."""
        end_with(int(os.environ[OWNER]))
        return super().__new__(cls)


def end_with(owner: int) -> None:
    """Kill this process and the engine's as soon as their owner has ended.

    Args:
        owner: id of a process that has started this one, or the one that has.
    """
    if owner == os.getpid() or not hasattr(os, "pidfd_open"):  # Linux alone has that
        return
    engine = os.getppid()
    try:
        ended = os.pidfd_open(owner)
    except ProcessLookupError:
        _end(engine)
    except OSError as error:
        logger.warning("if process %d is killed, vLLM's processes stay (%s)", owner, error)
        return
    watch = select.poll()
    watch.register(ended, select.POLLIN)

    def wait() -> None:
        watch.poll()
        _end(engine)

    threading.Thread(target=wait, name="owner", daemon=True).start()


def _end(engine: int) -> None:
    if os.getppid() == engine:  # where this process is its own engine, it was the owner
        os.kill(engine, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
