"""Worker processes that are asked one pair at a time, killed when they overrun, and replaced.

One daemon thread owns the processes; callers hand it questions and get futures, so any thread and
any event loop may call, and no signal is used. A worker has one question at a time: what it takes
down with it is that question alone.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from mclabel.answers.host import MAX_MESSAGE

logger = logging.getLogger(__name__)

START_S = 60.0
"""A worker that has not reported by then counts as failed."""
MAX_FAILED_STARTS = 3


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What a worker found."""

    same: bool | None
    reason: str
    """`decided`, `undecided`, `timeout`, `worker_died`, `no_worker` or `sympy_<error>`."""


@dataclass(slots=True)
class _Question:
    line: bytes
    future: Future[Proof]
    deaths: int = 0


@dataclass(slots=True)
class _Worker:
    channel: socket.socket
    deadline: float
    pid: int | None = None
    question: _Question | None = None
    buffer: bytearray = field(default_factory=bytearray)


class WorkerPool:
    """Workers that start on first need.

    Args:
        num_workers: at most so many processes at once.
        budget_s: wall-clock seconds a worker has for one question.
        memory_bytes: address space of a worker.
    """

    def __init__(self, *, num_workers: int, budget_s: float, memory_bytes: int) -> None:
        self._num_workers = num_workers
        self._budget_s = budget_s
        self._memory_bytes = memory_bytes
        self._waiting: deque[_Question] = deque()
        self._workers: list[_Worker] = []
        self._host: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._failed_starts = 0
        self._closed = False
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._bell, self._bell_rope = socket.socketpair()
        self._bell.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._run, name="mclabel-checker", daemon=True)
        self._thread.start()

    def ask(self, question: dict[str, Any]) -> Future[Proof]:
        """Queue a question: `gold`, `rules` and, unless only parsing is asked for, `answer`."""
        future: Future[Proof] = Future()
        line = json.dumps(question).encode() + b"\n"
        with self._lock:
            if self._closed or len(line) > MAX_MESSAGE:
                future.set_result(Proof(same=None, reason="no_worker"))
                return future
            self._waiting.append(_Question(line, future))
        self._ring()
        return future

    def worker_pids(self) -> list[int]:
        """Process ids of the workers that are up."""
        return [w.pid for w in tuple(self._workers) if w.pid is not None]

    def close(self) -> None:
        """Kill the workers; open questions get no verdict."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._ring()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=5)

    def abandon(self) -> None:
        """In a forked child: let go of what belongs to the parent."""
        self._closed = True
        for one in (
            self._control,
            self._bell,
            self._bell_rope,
            *(w.channel for w in self._workers),
        ):
            if one is not None:
                one.close()
        self._selector.close()
        self._workers.clear()
        self._host = None

    def _ring(self) -> None:
        try:
            self._bell_rope.send(b"!", socket.MSG_DONTWAIT)
        except BlockingIOError:
            return  # full of rings that are still to be heard
        except OSError:
            if not self._closed:
                raise

    def _run(self) -> None:
        try:
            while not self._closed:
                self._start_workers()
                self._assign()
                for key, _ in self._selector.select(self._wait_s()):
                    if key.data is None:
                        self._silence_bell()
                    else:
                        self._hear(key.data)
                self._kill_overdue()
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
        deadlines = [w.deadline for w in self._workers if w.question or w.pid is None]
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None

    def _start_workers(self) -> None:
        idle = sum(1 for w in self._workers if w.question is None)
        missing = min(self._num_workers - len(self._workers), len(self._waiting) - idle)
        for _ in range(missing):
            if self._failed_starts >= MAX_FAILED_STARTS:
                self._give_up()
                return
            self._start_worker()

    def _start_worker(self) -> None:
        control = self._started_host()
        ours, theirs = socket.socketpair()
        try:
            socket.send_fds(control, [b"F\n"], [theirs.fileno()])
        except OSError:
            ours.close()
            self._stop_host()
            self._failed_starts += 1
            return
        finally:
            theirs.close()
        worker = _Worker(ours, time.monotonic() + START_S)
        self._workers.append(worker)
        self._selector.register(ours, selectors.EVENT_READ, worker)

    def _started_host(self) -> socket.socket:
        if self._control is not None and self._host is not None and self._host.poll() is None:
            return self._control
        self._stop_host()
        ours, theirs = socket.socketpair()
        path = os.pathsep.join(entry for entry in sys.path if entry)
        with theirs:
            arguments = [str(theirs.fileno()), str(self._memory_bytes)]
            self._host = subprocess.Popen(
                [sys.executable, "-P", "-m", "mclabel.answers.host", *arguments],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._control = ours
        return ours

    def _stop_host(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._host is not None:
            self._host.kill()
            self._host.wait()
            self._host = None

    def _assign(self) -> None:
        for worker in self._workers:
            if worker.pid is None or worker.question is not None:
                continue
            try:
                question = self._waiting.popleft()
            except IndexError:
                return
            if not question.future.set_running_or_notify_cancel() if not question.deaths else False:
                continue
            worker.question = question
            worker.deadline = time.monotonic() + self._budget_s
            try:
                worker.channel.sendall(question.line)
            except OSError:
                self._lose(worker, "worker_died")
                return

    def _hear(self, worker: _Worker) -> None:
        try:
            data = worker.channel.recv(MAX_MESSAGE)
        except OSError:
            data = b""
        if not data:
            self._lose(worker, "worker_died")
            return
        worker.buffer += data
        while (end := worker.buffer.find(b"\n")) >= 0:
            message = json.loads(worker.buffer[:end])
            del worker.buffer[: end + 1]
            if "pid" in message:
                worker.pid = message["pid"]
                self._failed_starts = 0
            elif worker.question is not None:
                question, worker.question = worker.question, None
                question.future.set_result(Proof(same=message["same"], reason=message["reason"]))

    def _kill_overdue(self) -> None:
        now = time.monotonic()
        for worker in tuple(self._workers):
            if worker.deadline <= now and (worker.question is not None or worker.pid is None):
                self._lose(worker, "timeout")

    def _lose(self, worker: _Worker, reason: str) -> None:
        """Forget a worker, kill what is left of it, and settle its question.

        A question whose worker died on its own is asked once more: the death may have had a
        cause outside.
        """
        if worker not in self._workers:
            return
        self._workers.remove(worker)
        self._selector.unregister(worker.channel)
        worker.channel.close()
        if worker.pid is None:
            self._failed_starts += 1
            self._stop_host_if_alone()
        elif self._control is not None:
            try:
                self._control.send(b"K%d\n" % worker.pid)
            except OSError:
                self._stop_host()
        question = worker.question
        if question is None:
            return
        question.deaths += 1
        if reason == "worker_died" and question.deaths < 2:
            self._waiting.appendleft(question)
        else:
            question.future.set_result(Proof(same=None, reason=reason))

    def _stop_host_if_alone(self) -> None:
        if not self._workers:
            self._stop_host()

    def _give_up(self) -> None:
        logger.error(
            "the answer checker's workers do not start, so formulas that need sympy have no "
            "verdict. Try: python -m mclabel.answers.host"
        )
        self._failed_starts = MAX_FAILED_STARTS
        while self._waiting:
            self._settle(self._waiting.popleft())

    def _settle(self, question: _Question) -> None:
        if not question.future.done():
            question.future.set_result(Proof(same=None, reason="no_worker"))

    def _shut_down(self) -> None:
        with self._lock:
            self._closed = True
            waiting, self._waiting = self._waiting, deque()
        for worker in self._workers:
            worker.channel.close()
            if worker.question is not None:
                self._settle(worker.question)
        for question in waiting:
            self._settle(question)
        self._workers.clear()
        self._stop_host()
        self._selector.close()
        self._bell.close()
        self._bell_rope.close()
