"""Where code of somebody's own is called: each of its failures is one line that names it.

A room of components has one place where their answers come in (`estimators/checked.py`,
`engines/checked.py`, …). There a component's calls are made through a `Boundary`: what it raises,
and what its protocol does not allow it to give, becomes a `ComponentError` with the component, the
method, what it gave or raised, and the remedy. A call that does not return is noticed by a thread
of its own. Faults of the components that come with mclabel are left as they are, since they are
faults of mclabel.
"""

from __future__ import annotations

import inspect
import logging
import threading
import time
import traceback
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from mclabel.components import component_name, component_names
from mclabel.errors import ComponentError, MclabelError

T = TypeVar("T")

logger = logging.getLogger(__name__)

HANG_S = 300.0
"""Seconds after which a call that has not returned is taken to hang."""
LOOK_S = 0.5
"""Seconds between two looks at the calls under way."""
MAX_SHOWN = 200
"""Characters of what a component gave that a message repeats."""
_OURS = "mclabel"
_PAGES = {
    "estimators": "docs/extending-estimator.md",
    "engines": "docs/extending-engine.md",
    "checkers": "docs/extending-checker.md",
    "judges": "docs/extending-judge.md",
    "readers": "docs/extending-formats.md",
    "formats": "docs/extending-formats.md",
    "credits": "docs/rl.md",
}
_PAGE = "docs/extending.md"


class Boundary:
    """One component, as messages call it."""

    def __init__(self, kind: str, name: str, *, ours: bool = False) -> None:
        """Stand around a component.

        Args:
            kind: a key of `mclabel.components.BUILT_IN`.
            name: of the component, as a configuration gives it.
            ours: whether it comes with mclabel.
        """
        self.kind, self.name, self.ours = kind, name, ours

    @classmethod
    def around(cls, kind: str, target: Any) -> Boundary:
        """The boundary of a component's class or function."""
        module = getattr(target, "__module__", None) or ""
        ours = module == _OURS or module.startswith(f"{_OURS}.")
        return cls(kind, component_name(kind, target), ours=ours)

    @classmethod
    def named(cls, kind: str, name: str) -> Boundary:
        """The boundary of a component that is chosen by its name."""
        return cls(kind, name, ours=name in component_names(kind, built_in=True))

    def calling(self, method: str, *, may_take_long: bool = False) -> Calling:
        """A context in which a method is called, and must return within `HANG_S`.

        Args:
            method: its name.
            may_take_long: whether it may load or fetch something: that it takes long is then
                logged, and it is waited for.
        """
        return Calling(self, method, is_awaited=may_take_long)

    def awaiting(self, method: str) -> Calling:
        """A context in which a coroutine of a method is awaited."""
        return Calling(self, method, is_watched=False)

    def watching(self, method: str, *, may_take_long: bool = False) -> Calling:
        """As `calling`, of a method that may raise."""
        return Calling(self, method, is_awaited=may_take_long, is_told=False)

    @types.coroutine
    def steps(
        self, method: str, coroutine: Coroutine[Any, Any, T], *, may_take_long: bool = False
    ) -> Generator[Any, Any, T]:
        """Await a coroutine of a method, which must not hold the event loop.

        What it raises is raised as it is.

        Args:
            method: its name.
            coroutine: that it gave.
            may_take_long: as of `calling`.
        """
        if self.ours:
            return (yield from coroutine.__await__())
        value, error = None, None
        while True:
            try:
                with self.watching(method, may_take_long=may_take_long):
                    awaited = coroutine.send(value) if error is None else coroutine.throw(error)
            except StopIteration as end:
                found: T = end.value
                return found
            value = error = None
            try:
                value = yield awaited
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as thrown:  # a cancellation, into the coroutine
                error = thrown

    async def awaited(
        self, component: Any, method: str, *given: Any, may_take_long: bool = False, **more: Any
    ) -> Any:
        """What a coroutine method of the component gives; see `calling` and `steps`."""
        with self.calling(method):
            found = getattr(component, method)(*given, **more)
        coroutine = self.coroutine(method, found)
        call = _Call(self, method, may_take_long, time.monotonic())
        if not self.ours:
            _awaited[call] = None
        try:
            with self.awaiting(method):
                return await self.steps(method, coroutine, may_take_long=may_take_long)
        finally:
            _awaited.pop(call, None)

    def coroutine(self, method: str, found: Any) -> Coroutine[Any, Any, Any]:
        """What a coroutine method gave, for `steps`.

        Raises:
            ComponentError: it is nothing to await.
        """
        if inspect.iscoroutine(found):
            return found
        if inspect.isawaitable(found):
            return _awaiting(found)
        fault = f"gave {shown(found)} at once, must be a coroutine (async def {method})"
        raise self.broken(method, fault)

    def broken(self, method: str, fault: str) -> ComponentError:
        """The error of a method that does what its protocol does not allow.

        Args:
            method: its name.
            fault: a clause of which the method is the subject.
        """
        return ComponentError(
            f"{self.name}: {method} {fault}. Correct it ({_PAGES.get(self.kind, _PAGE)}), and run "
            "the same command again: completed work is kept"
        )

    def raised(self, method: str, error: BaseException) -> ComponentError:
        """The error that an exception of a method amounts to."""
        text = " ".join(str(error).split())
        said = f": {text}" if text else ""
        found = self.broken(method, f"raised {type(error).__name__}{clipped(said)}{_place(error)}")
        found.trace = "".join(traceback.format_exception(error))
        return found


async def _awaiting(found: Awaitable[T]) -> T:
    return await found


class Calling:
    """The context of one call; see `Boundary`."""

    __slots__ = ("_boundary", "_is_awaited", "_is_told", "_is_watched", "_method")

    def __init__(
        self,
        boundary: Boundary,
        method: str,
        *,
        is_watched: bool = True,
        is_awaited: bool = False,
        is_told: bool = True,
    ) -> None:
        """Prepare a call.

        Args:
            boundary: of the component.
            method: that is called.
            is_watched: whether it is noticed that the call has not returned within `HANG_S`.
            is_awaited: whether it is waited for even then.
            is_told: whether an exception becomes a `ComponentError`.
        """
        self._boundary, self._method, self._is_awaited = boundary, method, is_awaited
        self._is_watched = is_watched and not boundary.ours
        self._is_told = is_told and not boundary.ours

    def __enter__(self) -> None:
        if self._is_watched:
            _calls.begin(_Call(self._boundary, self._method, self._is_awaited, time.monotonic()))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_watched:
            _calls.end()
        if not self._is_told or not isinstance(error, Exception | SystemExit):
            return
        if isinstance(error, MclabelError):  # has a message for the user
            return
        raise self._boundary.raised(self._method, error) from error


@dataclass(frozen=True, eq=False, slots=True)
class _Call:
    """A call under way."""

    boundary: Boundary
    method: str
    is_awaited: bool
    since: float


class _Calls:
    """The calls under way, by thread, innermost last; a thread looks at them."""

    def __init__(self) -> None:
        self.under_way: dict[int, list[_Call]] = {}
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def begin(self, call: _Call) -> None:
        """A call begins in this thread."""
        self.under_way.setdefault(threading.get_ident(), []).append(call)
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._look, name="calls", daemon=True)
                    self._thread.start()

    def end(self) -> None:
        """The innermost call of this thread has ended."""
        calls = self.under_way[threading.get_ident()]
        calls.pop()
        if not calls:
            del self.under_way[threading.get_ident()]

    def _look(self) -> None:
        said: set[_Call] = set()
        while True:
            time.sleep(LOOK_S)
            now = time.monotonic()
            for calls in list(self.under_way.values()):
                for call in list(calls):
                    if now - call.since < HANG_S or call in said:
                        continue
                    said.add(call)
                    fault = f"has not returned for {now - call.since:.0f} s"
                    if call.is_awaited:
                        told = "%s: %s %s. It is waited for; Ctrl-C ends the job"
                        logger.warning(told, call.boundary.name, call.method, fault)
                    else:
                        _on_hang(call.boundary.broken(call.method, fault))


def warn_of_hang(error: MclabelError) -> None:
    """Log that a call does not return: all that can be done inside somebody's own process."""
    logger.warning("%s", error)


_calls = _Calls()
_awaited: dict[_Call, None] = {}
"""Coroutines of somebody's own that are awaited, in the order in which they were begun."""
_on_hang: Callable[[MclabelError], None] = warn_of_hang


def report_hang(kind: str, fault: str, otherwise: MclabelError) -> None:
    """Say that work which is awaited does not end, as of a call that does not return.

    Args:
        kind: of the component that is at fault, a key of `mclabel.components.BUILT_IN`.
        fault: a clause whose subject is the method of somebody's own component of that kind which
            has been awaited longest.
        otherwise: what is said if no such method is awaited.
    """
    call = next((one for one in list(_awaited) if one.boundary.kind == kind), None)
    _on_hang(call.boundary.broken(call.method, fault) if call else otherwise)


def has_hung_call() -> bool:
    """Whether a call of somebody's own component has not returned for `HANG_S`."""
    now = time.monotonic()
    calls = [call for calls in list(_calls.under_way.values()) for call in list(calls)]
    return any(now - call.since >= HANG_S for call in calls)


@contextmanager
def on_hang(act: Callable[[MclabelError], None]) -> Iterator[None]:
    """Say what is done meanwhile about a call that does not return; by default it is logged.

    Args:
        act: called once a call, from a thread of its own.
    """
    global _on_hang
    before, _on_hang = _on_hang, act
    try:
        yield
    finally:
        _on_hang = before


def shown(value: object) -> str:
    """What a component gave, for a message: its type, and the value where it is short."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # whatever a `repr` of somebody's own raises: the type says enough
        return f"a {type(value).__name__}"
    return "None" if value is None else f"{clipped(text)} ({type(value).__name__})"


def clipped(text: str) -> str:
    """A text that is no longer than a message can bear."""
    line = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
    return line if len(line) <= MAX_SHOWN else line[: MAX_SHOWN - 1] + "…"


def _place(error: BaseException) -> str:
    """File and line in the component's own file that the error came from, the innermost."""
    frames = traceback.extract_tb(error.__traceback__)
    package = str(Path(__file__).parent)
    outside = [one for one in frames if not one.filename.startswith(package)]
    if not outside:
        return ""
    last = [one for one in outside if one.filename == outside[0].filename][-1]
    return f" at {Path(last.filename).name}:{last.lineno}"
