"""Pool of worker processes, each of which answers one question.

A question is whether an answer equals a gold, or whether a gold can be parsed.

The process `host` forks the workers; see `run_attempt` for their budget. One daemon thread owns the
host. Callers queue questions for this thread and receive futures, so that any thread or event loop
may call. The caller's process uses no signals. A question that the quick attempt does not decide is
moved to a slow queue with a single worker, so that slow questions delay only each other. A question
whose process died or stalled is retried while no other question runs.
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
"""Seconds after which a host that has not reported its start counts as failed. Only a hanging host
is so slow.
"""
STALL_S = 300.0
"""Seconds after which a question without a result is retried, because its process was stopped or
got no CPU time.
"""
MAX_FAILED_STARTS = 3
"""Maximum number of failed starts of the host in a row."""
MAX_DEATHS = 3
"""Maximum number of attempts at a question whose process dies. The first attempt runs beside other
questions, the next ones alone."""


@dataclass(frozen=True, kw_only=True)
class WorkerReply:
    """A worker's reply: whether sympy found two expressions equal, or could parse a gold."""

    is_confirmed: bool | None
    """True if the pair is equal or the gold can be parsed, False if not, None if undecided."""
    reason: str
    """`decided`, `undecided`, `parsed`, `out_of_memory`, `too_many_steps`, `sympy_<error>`, or one
    of `PASSING`."""


PASSING = frozenset(("no_worker", "worker_died"))
"""Reasons of an unknown verdict that do not depend on the pair. Another attempt may decide it."""


@dataclass(slots=True, eq=False)
class _PendingQuestion:
    body: dict[str, Any]
    future: Future[WorkerReply]
    counts_steps: bool = False
    """True if the next attempt counts steps, because the quick attempt took too long."""
    num_deaths: int = 0
    """Number of attempts whose process died."""
    sent_at_s: float = 0.0
    """Time at which the question was last sent to the host, in seconds of the monotonic clock."""
    is_killed: bool = False
    """True if the host was told to kill the process of the current attempt."""

    @property
    def must_run_alone(self) -> bool:
        """Return whether the question must run while no other question runs."""
        return self.num_deaths > 0


class WorkerPool:
    """Pool of workers, which start when the first question is asked.

    Args:
        num_workers: maximum number of concurrent processes for quick attempts. One additional
            process works on slow questions.
        max_steps: maximum number of steps per question.
        memory_bytes: maximum address space of a worker in bytes.
    """

    def __init__(self, *, num_workers: int, max_steps: int, memory_bytes: int) -> None:
        self._num_workers = num_workers
        self._max_steps = max_steps
        self._memory_bytes = memory_bytes
        self._quick: deque[_PendingQuestion] = deque()
        self._slow: deque[_PendingQuestion] = deque()
        self._again: deque[_PendingQuestion] = deque()
        self._asked: dict[int, _PendingQuestion] = {}
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

    def submit(self, question: dict[str, Any]) -> Future[WorkerReply]:
        """Queue a question and return the future of its reply.

        Args:
            question: object with `gold`, and for a comparison also `answer` and `units_optional`.
        """
        future: Future[WorkerReply] = Future()
        with self._lock:
            if self._closed or len(json.dumps(question)) > MAX_MESSAGE // 2:
                future.set_result(WorkerReply(is_confirmed=None, reason="no_worker"))
                return future
            self._quick.append(_PendingQuestion(question, future))
        self._wake_thread()
        return future

    def host_pid(self) -> int | None:
        """Return the process id of the host, the parent of the workers; None if it is not up."""
        return self._host_pid

    def close(self) -> None:
        """Kill the workers. The reply to each unfinished question is `no_worker`."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._wake_thread()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=5)

    def close_inherited_descriptors(self) -> None:
        """Close the descriptors that a forked child has inherited from its parent process."""
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
            return  # the socket is full, so the thread will wake up anyway
        except OSError:
            if not self._closed:
                raise

    def _run_loop(self) -> None:
        try:
            while not self._closed:
                self._send_questions()
                for key, _ in self._selector.select(self._compute_poll_timeout_s()):
                    if key.fileobj is self._bell:
                        self._drain_wakeups()
                    elif key.fileobj is self._control:
                        self._receive_messages()
                self._kill_stalled_processes()
        except Exception:
            logger.exception(
                "the thread of the answer checker failed. Verdicts on pairs that need sympy will "
                "be unknown until this process is restarted"
            )
        finally:
            self._shut_down()

    def _drain_wakeups(self) -> None:
        try:
            while self._bell.recv(4096):
                pass
        except BlockingIOError:
            return

    def _compute_poll_timeout_s(self) -> float | None:
        """Return the seconds until a question or the start of the host counts as stalled; None if
        nothing is pending.
        """
        times = [question.sent_at_s + STALL_S for question in self._asked.values()]
        if self._host is not None and self._host_pid is None:
            times.append(self._started_at + START_S)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _send_questions(self) -> None:
        """Send queued questions to the host while workers are free."""
        while (question := self._pop_next_question()) is not None:
            if self._host is None and not self._start_host():
                return
            is_first = not question.must_run_alone and not question.counts_steps
            if is_first and not question.future.set_running_or_notify_cancel():
                continue  # cancelled
            self._send_question(question)

    def _pop_next_question(self) -> _PendingQuestion | None:
        """Remove a question that may run now from its queue and return it; None if none may run.

        Questions whose process died come first, and run alone. Slow questions come before others.
        """
        asked = self._asked.values()
        if any(question.must_run_alone for question in asked):
            return None
        if self._again:
            return None if self._asked else self._again.popleft()
        slow = sum(question.counts_steps for question in asked)
        if self._slow and not slow:
            return self._slow.popleft()
        if self._quick and len(self._asked) - slow < self._num_workers:
            return self._quick.popleft()
        return None

    def _send_question(self, question: _PendingQuestion) -> None:
        self._next_id += 1
        question.sent_at_s, question.is_killed = time.monotonic(), False
        self._asked[self._next_id] = question
        message = {
            **question.body,
            "id": self._next_id,
            "steps": self._max_steps,
            "counted": question.counts_steps,
        }
        if not self._send_to_host(json.dumps(message).encode() + b"\n"):
            self._handle_lost_host()

    def _send_to_host(self, message: bytes) -> bool:
        """Send a message to the host; return False if the host has ended."""
        assert self._control is not None
        try:
            self._control.sendall(message)
        except OSError:
            return False
        return True

    def _start_host(self) -> bool:
        """Start a host; return False if it has failed to start too often."""
        if self._failed_starts >= MAX_FAILED_STARTS:
            self._fail_without_workers()
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
            self._handle_lost_host()
            return
        self._buffer += data
        while (end := self._buffer.find(b"\n")) >= 0:
            message = json.loads(self._buffer[:end])
            del self._buffer[: end + 1]
            if "host" in message:
                self._host_pid = message["host"]
                self._failed_starts = 0
            elif (question := self._asked.pop(message["id"], None)) is not None:
                self._answer_or_retry(question, message)

    def _answer_or_retry(self, question: _PendingQuestion, message: dict[str, Any]) -> None:
        if "died" not in message:
            question.future.set_result(
                WorkerReply(is_confirmed=message["same"], reason=message["reason"])
            )
        elif message["died"] == signal.SIGPROF and not question.counts_steps:
            question.counts_steps = True
            (self._again if question.must_run_alone else self._slow).append(question)
        elif message["died"] == signal.SIGXCPU:
            question.future.set_result(WorkerReply(is_confirmed=None, reason="worker_died"))
        else:
            self._requeue_question(question)

    def _requeue_question(self, question: _PendingQuestion) -> None:
        """Retry a question whose process died, which may not be the fault of the question.

        After `MAX_DEATHS` deaths, the reply to the question is `worker_died`.
        """
        question.num_deaths += 1
        if question.num_deaths < MAX_DEATHS:
            self._again.append(question)
        else:
            question.future.set_result(WorkerReply(is_confirmed=None, reason="worker_died"))

    def _kill_stalled_processes(self) -> None:
        """Kill processes that have not replied for `STALL_S` seconds.

        Their questions are then retried.
        """
        now = time.monotonic()
        if self._host is not None and self._host_pid is None:
            if now >= self._started_at + START_S:
                self._handle_lost_host()
            return
        for number, question in self._asked.items():
            if now < question.sent_at_s + STALL_S:
                continue
            if question.is_killed or not self._send_to_host(b'{"kill": %d}\n' % number):
                # the host has not even reported the end of the killed process
                self._handle_lost_host()
                return
            question.is_killed, question.sent_at_s = True, now

    def _handle_lost_host(self) -> None:
        """Stop a host that has ended or cannot be reached, and retry its questions."""
        if self._host_pid is None:
            self._failed_starts += 1
        self._stop_host()
        lost = list(self._asked.values())
        self._asked.clear()
        for question in lost:
            self._requeue_question(question)

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

    def _fail_without_workers(self) -> None:
        logger.error(
            "the workers of the answer checker do not start, so verdicts on pairs that need sympy "
            "are unknown. To see the error, run: python -m mclabel.answers.workers.host"
        )
        self._fail_all_questions()

    def _fail_all_questions(self) -> None:
        with self._lock:
            waiting = [*self._quick, *self._slow, *self._again, *self._asked.values()]
            for collection in (self._quick, self._slow, self._again, self._asked):
                collection.clear()
        for question in waiting:
            if not question.future.done():
                question.future.set_result(WorkerReply(is_confirmed=None, reason="no_worker"))

    def _shut_down(self) -> None:
        with self._lock:
            self._closed = True
        self._stop_host()
        self._fail_all_questions()
        self._selector.close()
        self._bell.close()
        self._bell_rope.close()
