"""Requests under way: as many as there is room for, each ended by one clear word."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from mclabel.core.errors import DataError, EngineDied, EngineError, MclabelError
from mclabel.serving.bodies import Refused

T = TypeVar("T")

logger = logging.getLogger(__name__)

RETRY_S = 5
"""Seconds after which a client that was turned away may ask again."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much is done at a time."""

    max_live: int = 8
    """Requests that are worked on."""
    max_waiting: int = 64
    """Requests that wait for one to end."""


class Asked:
    """The requests of a server."""

    def __init__(self, limits: Limits) -> None:
        """Begin without any.

        Args:
            limits: of what is done at a time.
        """
        self._limits = limits
        self._slots = asyncio.Semaphore(limits.max_live)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ending: Refused | None = None
        self.died: EngineDied | None = None
        """Why nothing can be answered any more."""

    def __len__(self) -> int:
        """Requests under way and waiting."""
        return len(self._tasks)

    def begin(self, work: Callable[[], Awaitable[T]]) -> asyncio.Task[T]:
        """Work on a request when its turn comes. Cancelling the task ends it.

        Raises:
            Refused: there is too much to do already, or the server ends; so does the task where
                there is no answer.
        """
        if self._ending is not None:
            raise self._ending
        if len(self) >= self._limits.max_live + self._limits.max_waiting:
            raise Refused(
                429,
                f"{len(self)} requests are running or waiting already. Try again later",
                headers={"retry-after": str(RETRY_S)},
            )
        task = asyncio.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def end(self, why: str) -> None:
        """End all requests, and refuse others.

        Args:
            why: what clients are told.
        """
        if self._ending is None:
            self._ending = Refused(503, why)
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """End all requests, and wait until they have."""
        self.end("the server ends")
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # known now, also where its client is gone

    async def _guarded(self, work: Callable[[], Awaitable[T]]) -> T:
        """The answer, or why there is none."""
        try:
            async with self._slots:
                return await work()
        except asyncio.CancelledError:
            if self._ending is None:
                raise
            raise self._ending from None
        except Refused:
            raise
        except DataError as error:
            raise Refused(400, str(error)) from error
        except EngineDied as error:
            self.died = self.died or error
            self.end(str(error))
            raise Refused(503, str(error)) from error
        except EngineError as error:
            raise Refused(503, str(error)) from error
        except MclabelError as error:
            raise Refused(500, str(error)) from error
        except Exception as error:
            logger.exception("a request has failed")
            raise Refused(500, "a fault of the server has ended the request") from error
