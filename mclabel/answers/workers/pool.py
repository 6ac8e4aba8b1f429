"""Pool of processes that decide one pair each; a host forks them: see `host` and `attempt`.

One daemon thread owns the host; callers hand it questions and get futures, so any thread and any
event loop may call, and no signal is used. A question that the quick attempt does not settle waits
in a lane of its own, so that hard ones delay each other and nobody else. A question whose process
died, or stood still, is asked again alone.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from mclabel.answers.workers.host import MAX_MESSAGE

logger = logging.getLogger(__name__)

START_S = 600.0
"""Seconds after which a host that has not reported counts as failed: only a hanging host is so
slow.
"""
STALL_S = 300.0
"""Seconds after which a question without a result is asked again: its process was stopped, or
starved.
"""
MAX_FAILED_STARTS = 3
MAX_DEATHS = 3
"""Attempts at a question whose process dies: beside others, and twice alone."""


@dataclass(frozen=True, kw_only=True)
class Proof:
    """The result of a question to a worker."""

    same: bool | None
    reason: str
    """`decided`, `undecided`, `parsed`, `too_many_steps`, `sympy_<error>`; or, where another
    attempt may find more, one of `PASSING`."""


PASSING = frozenset(("no_worker", "worker_died"))
"""Reasons of an unknown verdict that say nothing about the pair: asked again, it may have one."""


@dataclass(slots=True, eq=False)
class _Question:
    body: dict[str, Any]
    future: Future[Proof]
    counted: bool = False
    deaths: int = 0
    since: float = 0.0
    """Time at which the question was last sent, in seconds of the monotonic clock."""
    is_killed: bool = False

    @property
    def alone(self) -> bool:
        return self.deaths > 0


class WorkerPool:
    """Workers that start on first need.

    Args:
        num_workers: processes at once for quick attempts; one more works on what takes longer.
        max_steps: maximum number of steps of one question.
        memory_bytes: address space of a worker.
    """

    def __init__(self, *, num_workers: int, max_steps: int, memory_bytes: int) -> None:
        self._num_workers = num_workers
        self._max_steps = max_steps
        self._memory_bytes = memory_bytes
        self._quick: deque[_Question] = deque()
        self._slow: deque[_Question] = deque()
        self._again: deque[_Question] = deque()
        self._asked: dict[int, _Question] = {}
        self._next_id = 0
        self._host: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._host_pid: int | None = None
        self._started_at = 0.0
        self._buffer = bytearray()
        self._failed_starts = 0
        self._closed = False
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._bell, self._bell_rope = socket.socketpair()
        self._bell.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run_loop, name="mclabel-checker", daemon=True)
        self._thread.start()

    def ask(self, question: dict[str, Any]) -> Future[Proof]:
        """Queue a question: `gold`, and for a comparison `answer` and `units_optional`."""
        future: Future[Proof] = Future()
        with self._lock:
            if self._closed or len(json.dumps(question)) > MAX_MESSAGE // 2:
                future.set_result(Proof(same=None, reason="no_worker"))
                return future
            self._quick.append(_Question(question, future))
        self._wake_thread()
        return future

    def host_pid(self) -> int | None:
        """Return the process id of the host if it is up; its children are the workers."""
        return self._host_pid

    def close(self) -> None:
        """Kill the workers; open questions get no verdict."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._wake_thread()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=5)

    def abandon(self) -> None:
        """Close, in a forked child, the resources that belong to the parent."""
        self._closed = True
        for resource in (self._control, self._bell, self._bell_rope):
            if resource is not None:
                resource.close()
        self._selector.close()
        self._host = None

    def _wake_thread(self) -> None:
        try:
            self._bell_rope.send(b"!", socket.MSG_DONTWAIT)
        except BlockingIOError:
            return  # full of rings that are still to be heard
        except OSError:
            if not self._closed:
                raise

    def _run_loop(self) -> None:
        try:
            while not self._closed:
                self._send_questions()
                for key, _ in self._selector.select(self._wait_s()):
                    if key.fileobj is self._bell:
                        self._silence_bell()
                    elif key.fileobj is self._control:
                        self._receive_messages()
                self._end_standstill()
        except Exception:
            logger.exception("the answer checker's thread failed: formulas will have no verdict")
        finally:
            self._shut_down()

    def _silence_bell(self) -> None:
        try:
            while self._bell.recv(4096):
                pass
        except BlockingIOError:
            return

    def _wait_s(self) -> float | None:
        """Return the seconds until a question, or the start of the host, counts as stalled; None if
        nothing is pending.
        """
        times = [question.since + STALL_S for question in self._asked.values()]
        if self._host is not None and self._host_pid is None:
            times.append(self._started_at + START_S)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _send_questions(self) -> None:
        """Send the questions for which there is a free worker."""
        while (question := self._next_question()) is not None:
            if self._host is None and not self._start_host():
                return
            is_first = not question.alone and not question.counted
            if is_first and not question.future.set_running_or_notify_cancel():
                continue  # cancelled
            self._send_question(question)

    def _next_question(self) -> _Question | None:
        """Return a question for which there is a place: alone, or in the quick or the slow lane."""
        asked = self._asked.values()
        if any(question.alone for question in asked):
            return None
        if self._again:
            return None if self._asked else self._again.popleft()
        slow = sum(question.counted for question in asked)
        if self._slow and not slow:
            return self._slow.popleft()
        if self._quick and len(self._asked) - slow < self._num_workers:
            return self._quick.popleft()
        return None

    def _send_question(self, question: _Question) -> None:
        self._next_id += 1
        question.since, question.is_killed = time.monotonic(), False
        self._asked[self._next_id] = question
        message = {
            **question.body,
            "id": self._next_id,
            "steps": self._max_steps,
            "counted": question.counted,
        }
        if not self._send_to_host(json.dumps(message).encode() + b"\n"):
            self._lose_host()

    def _send_to_host(self, message: bytes) -> bool:
        """Send to the host; False if it has ended."""
        assert self._control is not None
        try:
            self._control.sendall(message)
        except OSError:
            return False
        return True

    def _start_host(self) -> bool:
        """Start a host; False if that failed too often."""
        if self._failed_starts >= MAX_FAILED_STARTS:
            self._give_up()
            return False
        ours, theirs = socket.socketpair()
        path = os.pathsep.join(entry for entry in sys.path if entry)
        with theirs:
            arguments = [str(theirs.fileno()), str(self._memory_bytes)]
            self._host = subprocess.Popen(
                [sys.executable, "-P", "-m", "mclabel.answers.workers.host", *arguments],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._started_at = time.monotonic()
        self._control = ours
        self._buffer.clear()
        self._selector.register(ours, selectors.EVENT_READ)
        return True

    def _receive_messages(self) -> None:
        assert self._control is not None
        try:
            data = self._control.recv(MAX_MESSAGE)
        except OSError:
            data = b""
        if not data:
            self._lose_host()
            return
        self._buffer += data
        while (end := self._buffer.find(b"\n")) >= 0:
            message = json.loads(self._buffer[:end])
            del self._buffer[: end + 1]
            if "host" in message:
                self._host_pid = message["host"]
                self._failed_starts = 0
            elif (question := self._asked.pop(message["id"], None)) is not None:
                self._settle_question(question, message)

    def _settle_question(self, question: _Question, message: dict[str, Any]) -> None:
        if "died" not in message:
            question.future.set_result(Proof(same=message["same"], reason=message["reason"]))
        elif message["died"] == signal.SIGPROF and not question.counted:
            question.counted = True
            (self._again if question.alone else self._slow).append(question)
        elif message["died"] == signal.SIGXCPU:
            question.future.set_result(Proof(same=None, reason="worker_died"))
        else:
            self._ask_again(question)

    def _ask_again(self, question: _Question) -> None:
        """Ask a question again after a death that may have had an outside cause."""
        question.deaths += 1
        if question.deaths < MAX_DEATHS:
            self._again.append(question)
        else:
            question.future.set_result(Proof(same=None, reason="worker_died"))

    def _end_standstill(self) -> None:
        """Kill what has not answered for very long; it is reported as dead then."""
        now = time.monotonic()
        if self._host is not None and self._host_pid is None:
            if now >= self._started_at + START_S:
                self._lose_host()
            return
        for number, question in self._asked.items():
            if now < question.since + STALL_S:
                continue
            if question.is_killed or not self._send_to_host(b'{"kill": %d}\n' % number):
                self._lose_host()  # it does not even report that the process has ended
                return
            question.is_killed, question.since = True, now

    def _lose_host(self) -> None:
        """Forget a host that has ended or cannot be reached; its questions are asked again."""
        if self._host_pid is None:
            self._failed_starts += 1
        self._stop_host()
        lost = list(self._asked.values())
        self._asked.clear()
        for question in lost:
            self._ask_again(question)

    def _stop_host(self) -> None:
        if self._control is not None:
            self._selector.unregister(self._control)
            self._control.close()
            self._control = None
        if self._host is not None:
            self._host.kill()
            self._host.wait()
            self._host = None
        self._host_pid = None

    def _give_up(self) -> None:
        logger.error(
            "the answer checker's workers do not start, so formulas that need sympy have no "
            "verdict. Try: python -m mclabel.answers.workers.host"
        )
        self._settle_all()

    def _settle_all(self) -> None:
        with self._lock:
            waiting = [*self._quick, *self._slow, *self._again, *self._asked.values()]
            for collection in (self._quick, self._slow, self._again, self._asked):
                collection.clear()
        for question in waiting:
            if not question.future.done():
                question.future.set_result(Proof(same=None, reason="no_worker"))

    def _shut_down(self) -> None:
        with self._lock:
            self._closed = True
        self._stop_host()
        self._settle_all()
        self._selector.close()
        self._bell.close()
        self._bell_rope.close()
