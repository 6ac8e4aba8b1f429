"""How an engine in this process is loaded: in a thread that a stop may leave behind.

Loading takes seconds to minutes inside libraries that cannot be interrupted. It holds no work yet,
so who is cancelled meanwhile need not wait for it, as the threads of the loop itself would have to
be when the loop is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


async def load_beside(load: Callable[[], T]) -> T:
    """What `load` returns or raises; if the caller is cancelled, it is left to end by itself."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="load")
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, load)
    finally:
        thread.shutdown(wait=False)
