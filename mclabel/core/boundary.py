"""Calls components of users and other packages, and turns each failure into one clear error.

`Boundary` calls single methods; `Guard` stands in for a whole component, and `guarded` makes one
from its settings. The errors of built-in components pass through, since they are mclabel's own.
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
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Sized,
)
from contextlib import contextmanager
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from mclabel.core.components import PAGES, component_name, component_names, derived_class
from mclabel.core.errors import ComponentError, MclabelError

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
SLOW = {
    *("__init__", "start", "update_weights", "close", "check", "check_model", "preview", "known"),
    *("model_identity", "model_commit", "num_parameters", "rows"),
}
"""Methods of all protocols that may load or fetch something."""
_END = object()
"""Comes after the last of what a method yields."""


class Boundary:
    """Calls one component and checks what it returns.

    An exception, or a result that the protocol forbids, becomes a `ComponentError` with the
    component, the method, the value and the remedy. The protocol declares the result's type, down
    to the fields of records; a rule checks what depends on the arguments. A thread notices calls
    that do not return.
    """

    def __init__(self, kind: str, target: Any) -> None:
        """Stand around a component.

        Args:
            kind: a key of `mclabel.core.components.BUILT_IN`.
            target: its class or function, or the name by which a configuration chooses it.
        """
        self.kind = kind
        if isinstance(target, str):
            self.name, self.ours = target, target in component_names(kind, built_in=True)
        else:
            self.name = component_name(kind, target)
            self.ours = f"{target.__module__}.".startswith("mclabel.")

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
        """Call a method, which must return within `HANG_S`, and return its result.

        Args:
            method: its name.
            work: the method.
            given: its arguments.
            more: its keyword arguments.
            must: type of what it may give; see `misfit`.
            rule: a rule that the returned value must also keep.
            slow: whether it may load or fetch something: that it takes long is then logged, and it
                is waited for.

        Raises:
            ComponentError: it raises anything but an error of mclabel's own kinds, or gives what it
                may not.
        """
        if self.ours:
            result = work(*given, **more)
        else:
            result = self._tried(method, partial(work, *given, **more), slow=slow)
        if inspect.iscoroutine(result) or inspect.isasyncgen(result):
            if inspect.iscoroutine(result):
                result.close()
            fault = f"gave a {type(result).__name__}, must be a plain function or method (def)"
            raise self.broken(method, fault)
        if must is not Any or rule is not None:
            self._see(method, result, must, rule, *given, **more)
        return result

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
        """Await a coroutine method, which must not hold the event loop; see `call`."""
        begun = self._tried(method, partial(work, *given, **more), slow=slow)
        if not inspect.isawaitable(begun):
            fault = f"gave {shown(begun)} at once, must be a coroutine (async def {method})"
            raise self.broken(method, fault)
        if self.ours:
            result = await begun
        else:
            _awaited[call := _Call(self, method, slow)] = None
            try:
                result = await self._steps(method, begun, slow)
            except (Exception, SystemExit) as error:
                raise self.raised(method, error) from error
            finally:
                _awaited.pop(call, None)
        self._see(method, result, must, rule, *given, **more)
        return result

    def each(
        self,
        method: str,
        work: Callable[..., Any],
        /,
        *given: Any,
        must: Any = Any,
        rule: Rule | None = None,
        slow: bool = False,
    ) -> Iterator[Any]:
        """Yield what a method yields; see `call`.

        The type is of each, and so is the rule, which is also given what came before it: None
        before the first.
        """
        items, before, place = self.call(method, work, *given, slow=slow), None, method
        if not isinstance(items, Iterable) or isinstance(items, str | bytes | Mapping):
            raise self.broken(method, f"gave {shown(items)}, must yield one after the other")
        rest = self.call(method, iter, items, slow=slow)
        for number in count(1):
            item: Any = self.call(place, next, rest, _END, slow=slow)
            if item is _END:
                return
            self._see(place, item, must, rule, before)
            yield item
            before, place = item, f"{method}, after {number} of them,"

    def watched(self, method: str, work: Callable[[], T], *, slow: bool = False) -> T:
        """Call a function of the component while its time is watched; its errors pass through."""
        if self.ours:
            return work()
        _calls[call := _Call(self, method, slow)] = None
        _watch()
        try:
            return work()
        finally:
            del _calls[call]

    def _tried(self, method: str, work: Callable[[], T], *, slow: bool) -> T:
        try:
            return self.watched(method, work, slow=slow)
        except (Exception, SystemExit) as error:
            raise self.raised(method, error) from error

    @types.coroutine
    def _steps(self, method: str, given: Awaitable[T], slow: bool) -> Generator[Any, Any, T]:
        """Await what a method gave, of which each step up to the next waiting must return."""
        running = given if inspect.iscoroutine(given) else _awaiting(given)
        step: Callable[[], Any] = partial(running.send, None)
        while True:
            try:
                awaited = self.watched(method, step, slow=slow)
            except StopIteration as end:
                result: T = end.value
                return result
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
        self, method: str, result: Any, must: Any, rule: Rule | None, *given: Any, **more: Any
    ) -> None:
        if must is not Any and (wrong := misfit(result, must)) is not None:
            raise self.broken(method, f"gave {wrong}")
        if rule is not None and (fault := rule(result, *given, **more)) is not None:
            raise self.broken(method, fault)

    def raised(self, method: str, error: BaseException) -> BaseException:
        """Return the error to raise for an exception of a method."""
        if self.ours or isinstance(error, MclabelError):  # has a message for the user
            return error
        detail = f": {text}" if (text := clipped(str(error))) else ""
        failure = self.broken(method, f"raised {type(error).__name__}{detail}{_place(error)}")
        failure.trace = "".join(traceback.format_exception(error))
        return failure

    def broken(self, method: str, fault: str) -> ComponentError:
        """Return the error of a method that breaks its protocol.

        Args:
            method: its name.
            fault: a clause of which the method is the subject.
        """
        return ComponentError(
            f"{self.name}: {method} {fault}. Correct it ({PAGES[self.kind]}), and run "
            "the same command again: completed work is kept"
        )


async def _awaiting(given: Awaitable[T]) -> T:
    return await given


def guarded(
    base: type,
    settings: Any,
    *given: Any,
    rules: Mapping[str, Rule] | None = None,
    slow: bool = True,
    **more: Any,
) -> Any:
    """Make the component that settings name, behind its boundary.

    Args:
        base: its protocol.
        settings: settings that name the component; the first argument of its constructor.
        given: others.
        more: its keyword arguments.
        rules: rules by method name; see `Guard`.
        slow: whether its constructor may load or fetch something.

    Raises:
        ConfigError: they name no component of this kind.
        ComponentError: it cannot be made.
    """
    target = derived_class(settings, base)
    around = Boundary(settings.component_kind, target)
    made = around.call("__init__", target, settings, *given, slow=slow, **more)
    return Guard(made, base, around, rules)


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
            component: the component.
            base: its protocol, whose methods say what they give.
            around: its boundary.
            rules: rules by method name; see `Boundary.call` and `Boundary.each`.
        """
        self.component, self.around = component, around
        self._base, self._rules = base, rules or {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("component", "around"):
            raise AttributeError(name)
        declared = inspect.getattr_static(self._base, name, None)
        if isinstance(declared, property):
            read = partial(getattr, self.component, name)
            kept = given_by(declared.fget)
            return self.around.call(name, read, must=kept, slow=name in SLOW)
        if not inspect.isfunction(declared):
            return getattr(self.component, name)
        if (work := getattr(self.component, name, None)) is None:
            raise self.around.broken(name, f"is missing, must be a method ({name})")
        must: Any = given_by(declared)
        call: Callable[..., Any] = self.around.call
        if get_origin(must) in (Iterable, Iterator):
            must, call = get_args(must)[0], self.around.each
        elif inspect.iscoroutinefunction(declared):
            call = self.around.acall
        rule = self._rules.get(name)
        method = partial(call, name, work, must=must, rule=rule, slow=name in SLOW)
        self.__dict__[name] = method
        return method


@cache
def given_by(declared: Any) -> Any:
    """Return the type that a method declares to give."""
    alone = types.SimpleNamespace(__annotations__={"it": declared.__annotations__["return"]})
    return get_type_hints(alone, vars(sys.modules[declared.__module__]), include_extras=True)["it"]


def misfit(value: object, must: Any) -> str | None:
    """Return where a value is not of a type, and the rule; None if it is of that type.

    Args:
        value: the value.
        must: the type; a record in it is looked at field by field, nothing is converted, and any
            sequence stands for a list.
    """
    fault = _looking_for(must)(value)
    if fault and isinstance(value, Sequence) and not isinstance(value, str | bytes | tuple | list):
        return _looking_for(must)(list(value))
    return fault


@cache
def _looking_for(must: Any) -> Callable[[object], str | None]:
    from pydantic import ConfigDict, TypeAdapter, ValidationError  # not before it is needed

    exactly = ConfigDict(strict=True, revalidate_instances="always", arbitrary_types_allowed=True)
    # In a tuple, since a type with a configuration of its own takes none.
    validate = TypeAdapter(tuple[must], config=exactly).validator.validate_python

    def look(value: object) -> str | None:
        try:
            validate((value,))
        except ValidationError as error:
            first = max(error.errors(include_url=False), key=lambda fault: len(fault["loc"]))
            rule = first["msg"].replace("Input should", "must", 1)
            return f"{_named(value, first['loc'][1:])}{shown(first['input'])}, {rule}"
        return None

    return look


def _named(whole: object, location: Sequence[int | str]) -> str:
    """Return the place of a part of a value, without pydantic's names for parts of unions."""
    name, value = "", whole
    for part in location:
        try:
            value = getattr(value, part) if isinstance(part, str) else value[part]  # type: ignore[index]
        except (AttributeError, LookupError, TypeError):
            continue
        name += f"[{part}]" if isinstance(part, int) else f".{part}"
    return f"{name.removeprefix('.')}=" if name else ""


def miscounted(items: str, given: Sized, unit: str, num_wanted: int) -> str | None:
    """Return the fault of a component that does not give one of each; None if it does.

    Args:
        items: noun for what it gave, and a preposition, such as "scores for".
        given: the items.
        unit: noun for what there must be one of each, such as "step".
        num_wanted: the number that there must be.
    """
    if len(given) == num_wanted:
        return None
    return f"gave {len(given)} {items} {num_wanted} {unit}s, must give one per {unit}"


class _Call:
    """A call under way."""

    __slots__ = ("boundary", "method", "since", "slow")

    def __init__(self, boundary: Boundary, method: str, slow: bool) -> None:
        self.boundary, self.method, self.slow = boundary, method, slow
        self.since = time.monotonic()


_calls: dict[_Call, None] = {}
"""Calls that hold their thread; a thread of its own looks at them."""
_awaited: dict[_Call, None] = {}
"""Coroutines of somebody's own that are awaited, in the order in which they were begun."""
_watching: list[threading.Thread] = []
_lock = threading.Lock()


def _watch() -> None:
    if not _watching:
        with _lock:
            if not _watching:
                _watching.append(threading.Thread(target=_look, name="calls", daemon=True))
                _watching[0].start()


def _look() -> None:
    reported: set[_Call] = set()
    while True:
        time.sleep(LOOK_S)
        for call in set(_hung()) - reported:
            reported.add(call)
            fault = f"has not returned for {time.monotonic() - call.since:.0f} s"
            if call.slow:
                message = "%s: %s %s. It is waited for; Ctrl-C ends the job"
                logger.warning(message, call.boundary.name, call.method, fault)
            else:
                _on_hang(call.boundary.broken(call.method, fault))


def _hung() -> list[_Call]:
    now = time.monotonic()
    return [call for call in list(_calls) if now - call.since >= HANG_S]


def has_hung_call() -> bool:
    """Return whether a call of a user's component has not returned for `HANG_S`."""
    return bool(_hung())


def warn_of_hang(error: MclabelError) -> None:
    """Log that a call does not return: all that can be done inside a user's process."""
    logger.warning("%s", error)


_on_hang: Callable[[MclabelError], None] = warn_of_hang


def report_hang(kind: str, fault: str, otherwise: MclabelError) -> None:
    """Report that awaited work does not end, in the way of a call that does not return.

    Args:
        kind: kind of the faulty component, a key of `mclabel.core.components.BUILT_IN`.
        fault: a clause whose subject is the method of somebody's own component of that kind which
            has been awaited longest.
        otherwise: the error to report if no such method is awaited.
    """
    call = next((awaited for awaited in list(_awaited) if awaited.boundary.kind == kind), None)
    _on_hang(call.boundary.broken(call.method, fault) if call else otherwise)


@contextmanager
def on_hang(act: Callable[[MclabelError], None]) -> Iterator[None]:
    """Set what is done about a call that does not return; by default it is logged.

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
    """Describe a component's value for a message: its type, and the value where it is short."""
    try:
        text = clipped(repr(value))
    except Exception:  # whatever a `repr` of somebody's own raises: the type says enough
        return f"a {type(value).__name__}"
    return "None" if value is None else f"{text} ({type(value).__name__})"


def clipped(text: str, most: int = MAX_SHOWN) -> str:
    """Return a text on one line of at most `most` printable characters."""
    line = " ".join(text.split())
    line = "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in line
    )
    return line if len(line) <= most else line[: most - 1] + "…"


def _place(error: BaseException) -> str:
    """File and line in the component's own file that the error came from, the innermost."""
    frames = traceback.extract_tb(error.__traceback__)
    package = str(Path(__file__).parents[1])
    outside = [frame for frame in frames if not frame.filename.startswith(package)]
    if not outside:
        return ""
    last = [frame for frame in outside if frame.filename == outside[0].filename][-1]
    return f" at {Path(last.filename).name}:{last.lineno}"
