"""Where code of somebody's own is called: each of its failures is one line that names it.

A component is called through a `Boundary`, or stands behind a `Guard`, which calls all of its
methods so. What it raises, and what its protocol does not allow it to give, becomes a
`ComponentError` with the component, the method, what it gave or raised, and the remedy. What a
method may give is what its protocol declares: the type that it returns, down to the fields of
records, and a rule where that depends on what it was given. A call that does not return is noticed
by a thread of its own. What the components raise that come with mclabel is left as it is, since
their faults are faults of mclabel.
"""

from __future__ import annotations

import inspect
import logging
import sys
import threading
import time
import traceback
import types
from collections.abc import (
    Awaitable,
    Callable,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from mclabel.components import component_name, component_names
from mclabel.errors import ComponentError, MclabelError

T = TypeVar("T")
Rule = Callable[..., str | None]
"""From what a method gave and its arguments to what is wrong, a clause whose subject is the method;
None if nothing is."""

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
SLOW = {
    *("__init__", "start", "update_weights", "close", "check", "check_model", "preview", "known"),
    *("model_identity", "model_commit", "num_parameters"),
}
"""Methods of all protocols that may load or fetch something."""


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

    def call(
        self,
        method: str,
        work: Callable[..., T],
        /,
        *given: Any,
        must: Any = Any,
        rule: Rule | None = None,
        slow: bool = False,
        **more: Any,
    ) -> T:
        """What a method gives, which must return within `HANG_S`.

        Args:
            method: its name.
            work: the method.
            given: its arguments.
            more: its keyword arguments.
            must: type of what it may give; see `misfit`.
            rule: that it must also keep.
            slow: whether it may load or fetch something: that it takes long is then logged, and it
                is waited for.

        Raises:
            ComponentError: it raises anything but an error of mclabel's own kinds, or gives what it
                may not.
        """
        try:
            found = self.watched(method, partial(work, *given, **more), slow=slow)
        except (Exception, SystemExit) as error:
            raise self.raised(method, error) from error
        if inspect.iscoroutine(found) or inspect.isasyncgen(found):
            if inspect.iscoroutine(found):
                found.close()
            fault = f"gave a {type(found).__name__}, must be a plain function or method (def)"
            raise self.broken(method, fault)
        self._see(method, found, must, rule, given, more)
        return found

    async def acall(
        self,
        method: str,
        work: Callable[..., Awaitable[T]],
        /,
        *given: Any,
        must: Any = Any,
        rule: Rule | None = None,
        slow: bool = False,
        **more: Any,
    ) -> T:
        """What a coroutine method gives, which must not hold the event loop; see `call`."""
        try:
            coroutine = self.watched(method, partial(work, *given, **more))
        except (Exception, SystemExit) as error:
            raise self.raised(method, error) from error
        if not (inspect.iscoroutine(coroutine) or inspect.isawaitable(coroutine)):
            fault = f"gave {shown(coroutine)} at once, must be a coroutine (async def {method})"
            raise self.broken(method, fault)
        if self.ours:
            found = await coroutine
        else:
            found = await self._stepped(method, coroutine, slow)
        self._see(method, found, must, rule, given, more)
        return found

    def watched(self, method: str, work: Callable[[], T], *, slow: bool = False) -> T:
        """What a function of the component gives; what it raises is raised as it is."""
        if self.ours:
            return work()
        _calls.begin(_Call(self, method, slow, time.monotonic()))
        try:
            return work()
        finally:
            _calls.end()

    async def _stepped(self, method: str, given: Awaitable[T], slow: bool) -> T:
        under_way = _Call(self, method, slow, time.monotonic())
        _awaited[under_way] = None
        try:
            return await self._steps(method, given, slow)
        except (Exception, SystemExit) as error:
            raise self.raised(method, error) from error
        finally:
            _awaited.pop(under_way, None)

    @types.coroutine
    def _steps(self, method: str, given: Awaitable[T], slow: bool) -> Generator[Any, Any, T]:
        """Await what a method gave, of which each step up to the next waiting must return."""
        running = given if inspect.iscoroutine(given) else _awaiting(given)
        step: Callable[[], Any] = partial(running.send, None)
        while True:
            try:
                awaited = self.watched(method, step, slow=slow)
            except StopIteration as end:
                found: T = end.value
                return found
            try:
                value = yield awaited
            except GeneratorExit:
                running.close()
                raise
            except BaseException as thrown:  # a cancellation, into the coroutine
                step = partial(running.throw, thrown)
            else:
                step = partial(running.send, value)

    def _see(
        self,
        method: str,
        found: object,
        must: Any,
        rule: Rule | None,
        given: tuple[Any, ...],
        more: Mapping[str, Any],
    ) -> None:
        if must is not Any and (wrong := misfit(found, must)) is not None:
            raise self.broken(method, f"gave {wrong}")
        if rule is not None and (fault := rule(found, *given, **more)) is not None:
            raise self.broken(method, fault)

    def raised(self, method: str, error: BaseException) -> BaseException:
        """What an exception of a method amounts to."""
        if self.ours or isinstance(error, MclabelError):  # has a message for the user
            return error
        text = " ".join(str(error).split())
        said = f": {text}" if text else ""
        found = self.broken(method, f"raised {type(error).__name__}{clipped(said)}{_place(error)}")
        found.trace = "".join(traceback.format_exception(error))
        return found

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


async def _awaiting(given: Awaitable[T]) -> T:
    return await given


class Guard:
    """A component behind its boundary: it has its methods, which are called through `Boundary`."""

    def __init__(
        self,
        component: Any,
        base: type,
        around: Boundary,
        rules: Mapping[str, Rule] | None = None,
    ) -> None:
        """Stand before a component.

        Args:
            component: that is made.
            base: its protocol, whose methods say what they give.
            around: its boundary.
            rules: of methods, by their names; see `Boundary.call`.
        """
        self.component, self.around = component, around
        self._base, self._rules = base, rules or {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("component", "around"):
            raise AttributeError(name)
        declared = inspect.getattr_static(self._base, name, None)
        if isinstance(declared, property):
            work = partial(getattr, self.component, name)
            return self.around.call(name, work, **self._terms(name, declared.fget))
        if not inspect.isfunction(declared):
            return getattr(self.component, name)
        call = self.around.acall if inspect.iscoroutinefunction(declared) else self.around.call
        work = getattr(self.component, name)
        method = partial(call, name, work, **self._terms(name, declared))
        self.__dict__[name] = method
        return method

    def _terms(self, name: str, declared: Any) -> dict[str, Any]:
        return {
            "must": given_by(declared),
            "rule": self._rules.get(name),
            "slow": name in SLOW,
        }


@cache
def given_by(declared: Any) -> Any:
    """The type that a method declares to give."""
    alone = types.SimpleNamespace(__annotations__={"it": declared.__annotations__["return"]})
    return get_type_hints(alone, vars(sys.modules[declared.__module__]), include_extras=True)["it"]


def misfit(found: object, must: Any) -> str | None:
    """Where a value is not of a type: the place, what stands there, and the rule; None if it is.

    Args:
        found: the value.
        must: the type; a record in it is looked at field by field, nothing is converted, and any
            sequence stands for a list.
    """
    fault = _looking_for(must)(found)
    if fault and isinstance(found, Sequence) and not isinstance(found, str | bytes | tuple | list):
        return _looking_for(must)(list(found))
    return fault


@cache
def _looking_for(must: Any) -> Callable[[object], str | None]:
    from pydantic import ConfigDict, TypeAdapter, ValidationError  # not before it is needed

    exactly = ConfigDict(strict=True, revalidate_instances="always", arbitrary_types_allowed=True)
    # In a tuple, since a type with a configuration of its own takes none.
    validate = TypeAdapter(tuple[must], config=exactly).validator.validate_python

    def look(found: object) -> str | None:
        try:
            validate((found,))
        except ValidationError as error:
            first = max(error.errors(include_url=False), key=lambda one: len(one["loc"]))
            rule = first["msg"].replace("Input should", "must", 1)
            return f"{_named(found, first['loc'][1:])}{shown(first['input'])}, {rule}"
        return None

    return look


def _named(found: object, location: Sequence[int | str]) -> str:
    """Where something stands in what was given, without what pydantic calls the parts of unions."""
    name, value = "", found
    for part in location:
        try:
            value = getattr(value, part) if isinstance(part, str) else value[part]  # type: ignore[index]
        except (AttributeError, LookupError, TypeError):
            continue
        name += f"[{part}]" if isinstance(part, int) else f".{part}"
    return f"{name.removeprefix('.')}=" if name else ""


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

    def hung(self) -> dict[_Call, float]:
        """The calls that have not returned within `HANG_S`, and their seconds so far."""
        now = time.monotonic()
        calls = [call for calls in list(self.under_way.values()) for call in list(calls)]
        return {call: now - call.since for call in calls if now - call.since >= HANG_S}

    def _look(self) -> None:
        said: set[_Call] = set()
        while True:
            time.sleep(LOOK_S)
            for call, seconds in self.hung().items():
                if call in said:
                    continue
                said.add(call)
                fault = f"has not returned for {seconds:.0f} s"
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
    return bool(_calls.hung())


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
