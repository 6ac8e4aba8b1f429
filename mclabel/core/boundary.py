"""Calls components (engines, checkers, estimators and the like), and turns a failure into one
error.

`Boundary` calls single methods of a third-party component. `Guard` is a proxy for a component, and
`make_guarded` creates it from settings. Errors of built-in components pass unchanged.
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

from mclabel.core.components import (
    DOCS_PAGES,
    find_component_name,
    list_component_names,
    load_component_class,
)
from mclabel.core.errors import ComponentError, MclabelError

T = TypeVar("T")
Rule = Callable[..., str | None]
"""Function that checks a method's result, given the result and the method's arguments. It returns a
clause that describes the fault and whose subject is the method; None if the result is valid."""

logger = logging.getLogger(__name__)

HANG_S = 300.0
"""Seconds after which a call that has not returned counts as hanging."""
WATCH_INTERVAL_S = 0.5
"""Seconds between two checks for calls that hang."""
MAX_SHOWN = 200
"""Maximum number of characters of a value in a message."""
SLOW_METHODS = {
    *("__init__", "start", "close", "check", "check_model", "preview", "known"),
    *("model_identity", "model_commit", "num_parameters", "rows"),
}
"""Names of the protocols' methods that may load or fetch data, and so may take longer than
`HANG_S`."""
_END = object()
"""Value that `next` returns at the end of an iterator."""


class Boundary:
    """Calls the methods of one component, and checks what they return.

    An exception, or a result that the protocol forbids, becomes a `ComponentError` with the
    component, the method, the value and the remedy. The protocol declares the result's type, down
    to the fields of records. A rule checks conditions that depend on the arguments. A thread
    detects calls that do not return within `HANG_S`.
    """

    def __init__(self, component_kind: str, target: Any) -> None:
        """Make the boundary of a component.

        Args:
            component_kind: kind of the component, a key of `mclabel.core.components.BUILT_IN`.
            target: class or function of the component, or the component's name in a configuration.
        """
        self.kind = component_kind
        if isinstance(target, str):
            self.name, self.is_built_in = (
                target,
                target in list_component_names(component_kind, built_in=True),
            )
        else:
            self.name = find_component_name(component_kind, target)
            self.is_built_in = f"{target.__module__}.".startswith("mclabel.")

    def call(
        self,
        method: str,
        work: Callable[..., T],
        /,
        *arguments: Any,
        result_type: Any = Any,
        rule: Rule | None = None,
        slow: bool = False,
        **keyword_arguments: Any,
    ) -> T:
        """Call a method of the component, check its result, and return it. The call must end within
        `HANG_S`.

        Args:
            method: name of the method.
            work: the bound method.
            arguments: positional arguments of the method.
            keyword_arguments: keyword arguments of the method.
            result_type: type that the result must have, down to the fields of records.
            rule: function that checks the result further; None for no further check.
            slow: True if the method may load or fetch something. If it takes longer than `HANG_S`,
                this is logged, and the call goes on.

        Raises:
            ComponentError: the method raises an error that is not one of mclabel's own, or returns
                an invalid result.
        """
        if self.is_built_in:
            result = work(*arguments, **keyword_arguments)
        else:
            result = self._call_and_wrap_errors(
                method, partial(work, *arguments, **keyword_arguments), slow=slow
            )
        if inspect.iscoroutine(result) or inspect.isasyncgen(result):
            if inspect.iscoroutine(result):
                result.close()
            fault = f"gave a {type(result).__name__}, must be a plain function or method (def)"
            raise self.make_protocol_error(method, fault)
        if result_type is not Any or rule is not None:
            self._check_result(method, result, result_type, rule, *arguments, **keyword_arguments)
        return result

    async def call_async(
        self,
        method: str,
        work: Callable[..., Awaitable[T]],
        /,
        *arguments: Any,
        result_type: Any = Any,
        rule: Rule | None = None,
        slow: bool = False,
        **keyword_arguments: Any,
    ) -> T:
        """Await a coroutine method of the component, and check its result; the arguments are those
        of `call`. The method must not block the event loop.
        """
        awaitable = self._call_and_wrap_errors(
            method, partial(work, *arguments, **keyword_arguments), slow=slow
        )
        if not inspect.isawaitable(awaitable):
            must = f"must be a coroutine (async def {method})"
            raise self.make_protocol_error(
                method, f"gave {describe_value(awaitable)} at once, {must}"
            )
        if self.is_built_in:
            result = await awaitable
        else:
            _awaited[call := _RunningCall(self, method, slow)] = None
            try:
                result = await self._await_and_report_hang(method, awaitable, slow)
            except (Exception, SystemExit) as error:
                raise self.wrap_error(method, error) from error
            finally:
                _awaited.pop(call, None)
        self._check_result(method, result, result_type, rule, *arguments, **keyword_arguments)
        return result

    def iterate(
        self,
        method: str,
        work: Callable[..., Any],
        /,
        *arguments: Any,
        result_type: Any = Any,
        rule: Rule | None = None,
        slow: bool = False,
    ) -> Iterator[Any]:
        """Yield the items that a method of the component yields; the arguments are those of `call`.

        The type and the rule apply to each item. The rule also receives the previous item, or None
        for the first item.
        """
        items, previous, call_label = self.call(method, work, *arguments, slow=slow), None, method
        if not isinstance(items, Iterable) or isinstance(items, str | bytes | Mapping):
            raise self.make_protocol_error(
                method, f"gave {describe_value(items)}, must yield items one by one"
            )
        iterator = self.call(method, iter, items, slow=slow)
        for number in count(1):
            item: Any = self.call(call_label, next, iterator, _END, slow=slow)
            if item is _END:
                return
            self._check_result(call_label, item, result_type, rule, previous)
            yield item
            previous, call_label = item, f"{method}, after {number} items,"

    def call_and_report_hang(self, method: str, work: Callable[[], T], *, slow: bool = False) -> T:
        """Call a function of the component, and report the call if it hangs. The function's errors
        pass unchanged.
        """
        if self.is_built_in:
            return work()
        _calls[call := _RunningCall(self, method, slow)] = None
        _start_watching()
        try:
            return work()
        finally:
            del _calls[call]

    def _call_and_wrap_errors(self, method: str, work: Callable[[], T], *, slow: bool) -> T:
        try:
            return self.call_and_report_hang(method, work, slow=slow)
        except (Exception, SystemExit) as error:
            raise self.wrap_error(method, error) from error

    @types.coroutine
    def _await_and_report_hang(
        self, method: str, awaitable: Awaitable[T], slow: bool
    ) -> Generator[Any, Any, T]:
        """Await the result of a method, and report a step of the coroutine (up to its next
        suspension) that blocks the event loop for `HANG_S`.
        """
        coroutine = awaitable if inspect.iscoroutine(awaitable) else _wrap_in_coroutine(awaitable)
        step: Callable[[], Any] = partial(coroutine.send, None)
        while True:
            try:
                awaited = self.call_and_report_hang(method, step, slow=slow)
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                value = yield awaited
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as thrown:  # passes a cancellation to the coroutine
                step = partial(coroutine.throw, thrown)
            else:
                step = partial(coroutine.send, value)

    def _check_result(
        self,
        method: str,
        result: Any,
        result_type: Any,
        rule: Rule | None,
        *arguments: Any,
        **keyword_arguments: Any,
    ) -> None:
        if result_type is not Any and (misfit_text := find_misfit(result, result_type)) is not None:
            raise self.make_protocol_error(method, f"gave {misfit_text}")
        if (
            rule is not None
            and (fault := rule(result, *arguments, **keyword_arguments)) is not None
        ):
            raise self.make_protocol_error(method, fault)

    def wrap_error(self, method: str, error: BaseException) -> BaseException:
        """Return the error to raise for an exception of a method."""
        if self.is_built_in or isinstance(error, MclabelError):  # its message is for the user
            return error
        detail = f": {text}" if (text := clip_text(str(error))) else ""
        failure = self.make_protocol_error(
            method, f"raised {type(error).__name__}{detail}{_describe_error_location(error)}"
        )
        failure.trace = "".join(traceback.format_exception(error))
        return failure

    def make_protocol_error(self, method: str, fault: str) -> ComponentError:
        """Return the error to raise if a method breaks its protocol.

        Args:
            method: name of the method.
            fault: clause whose subject is the method.
        """
        return ComponentError(
            f"{self.name}: {method} {fault}. Correct it ({DOCS_PAGES[self.kind]}), and run "
            "the same command again: completed work is kept"
        )


async def _wrap_in_coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable


def make_guarded(
    base: type,
    settings: Any,
    *arguments: Any,
    rules: Mapping[str, Rule] | None = None,
    slow: bool = True,
    **keyword_arguments: Any,
) -> Any:
    """Make the component that settings name, and return a proxy, a `Guard`, for it.

    Args:
        base: protocol of the component.
        settings: settings that name the component, and first argument of its constructor.
        arguments: further positional arguments of the constructor.
        keyword_arguments: keyword arguments of the constructor.
        rules: functions that check results further, by method name.
        slow: True if the constructor may load or fetch something, and so may take long.

    Raises:
        ConfigError: the settings name no component of this kind.
        ComponentError: the component cannot be made.
    """
    target = load_component_class(settings, base)
    boundary = Boundary(settings.component_kind, target)
    component = boundary.call(
        "__init__", target, settings, *arguments, slow=slow, **keyword_arguments
    )
    return Guard(component, base, boundary, rules)


class Guard:
    """A proxy for a component, which calls the component's methods through its `Boundary`."""

    def __init__(
        self,
        component: Any,
        base: type,
        boundary: Boundary,
        rules: Mapping[str, Rule] | None = None,
    ) -> None:
        """Make a proxy for a component.

        Args:
            component: component to call.
            base: protocol of the component, whose methods declare the types of their results.
            boundary: boundary of the component.
            rules: functions that check results further, by method name; None for no further checks.
        """
        self.component, self.boundary = component, boundary
        self._base, self._rules = base, rules or {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("component", "boundary"):
            raise AttributeError(name)
        declared = inspect.getattr_static(self._base, name, None)
        if isinstance(declared, property):
            read = partial(getattr, self.component, name)
            property_type = resolve_return_type(declared.fget)
            return self.boundary.call(
                name, read, result_type=property_type, slow=name in SLOW_METHODS
            )
        if not inspect.isfunction(declared):
            return getattr(self.component, name)
        if (work := getattr(self.component, name, None)) is None:
            raise self.boundary.make_protocol_error(name, f"is missing, must be a method ({name})")
        result_type: Any = resolve_return_type(declared)
        call: Callable[..., Any] = self.boundary.call
        if get_origin(result_type) in (Iterable, Iterator):
            result_type, call = get_args(result_type)[0], self.boundary.iterate
        elif inspect.iscoroutinefunction(declared):
            call = self.boundary.call_async
        rule = self._rules.get(name)
        method = partial(
            call, name, work, result_type=result_type, rule=rule, slow=name in SLOW_METHODS
        )
        self.__dict__[name] = method
        return method


@cache
def resolve_return_type(declared: Any) -> Any:
    """Return the type that a method declares for its result."""
    annotated = types.SimpleNamespace(__annotations__={"it": declared.__annotations__["return"]})
    return get_type_hints(annotated, vars(sys.modules[declared.__module__]), include_extras=True)[
        "it"
    ]


def find_misfit(value: object, expected_type: Any) -> str | None:
    """Return a text with the part of a value that does not fit a type and the rule that it breaks;
    None if the value fits.

    Args:
        value: value to check.
        expected_type: type that the value must have. Records in it are checked field by field,
            nothing is converted, and any sequence counts as a list.
    """
    fault = _make_misfit_check(expected_type)(value)
    if fault and isinstance(value, Sequence) and not isinstance(value, str | bytes | tuple | list):
        return _make_misfit_check(expected_type)(list(value))
    return fault


@cache
def _make_misfit_check(expected_type: Any) -> Callable[[object], str | None]:
    from pydantic import ConfigDict, TypeAdapter, ValidationError  # slow to import

    strict_config = ConfigDict(
        strict=True, revalidate_instances="always", arbitrary_types_allowed=True
    )
    # The tuple is needed because pydantic rejects a configuration for a type that has its own.
    validate = TypeAdapter(tuple[expected_type], config=strict_config).validator.validate_python

    def describe_misfit(value: object) -> str | None:
        try:
            validate((value,))
        except ValidationError as error:
            first = max(error.errors(include_url=False), key=lambda fault: len(fault["loc"]))
            rule = first["msg"].replace("Input should", "must", 1)
            path = _format_part_path(value, first["loc"][1:])
            return f"{path}{describe_value(first['input'])}, {rule}"
        return None

    return describe_misfit


def _format_part_path(root: object, location: Sequence[int | str]) -> str:
    """Return the path to a part of a value, without the names that pydantic adds for unions."""
    name, value = "", root
    for part in location:
        try:
            value = getattr(value, part) if isinstance(part, str) else value[part]  # type: ignore[index]
        except (AttributeError, LookupError, TypeError):
            continue
        name += f"[{part}]" if isinstance(part, int) else f".{part}"
    return f"{name.removeprefix('.')}=" if name else ""


def check_item_count(
    items_phrase: str, items_returned: Sized, unit_noun: str, num_wanted: int
) -> str | None:
    """Return the fault if a component has not returned exactly one item for each unit of its input;
    else None.

    The fault is a clause whose subject is the method.

    Args:
        items_phrase: noun for the items and a preposition, such as "scores for".
        items_returned: items that the component has returned.
        unit_noun: noun for a unit, such as "step".
        num_wanted: number of units, which is the required number of items.
    """
    if len(items_returned) == num_wanted:
        return None
    return (
        f"gave {len(items_returned)} {items_phrase} {num_wanted} {unit_noun}s, must give one per "
        f"{unit_noun}"
    )


class _RunningCall:
    """A call that has not returned yet."""

    __slots__ = ("boundary", "method", "since", "slow")

    def __init__(self, boundary: Boundary, method: str, slow: bool) -> None:
        self.boundary, self.method, self.slow = boundary, method, slow
        self.since = time.monotonic()


_calls: dict[_RunningCall, None] = {}
"""Calls that block their thread until they return. The dict serves as an ordered set, and a
separate thread checks how long they take."""
_awaited: dict[_RunningCall, None] = {}
"""Coroutines of users' components that are being awaited, in the order in which they started. The
dict serves as an ordered set."""
_watch_threads: list[threading.Thread] = []
_lock = threading.Lock()


def _start_watching() -> None:
    if not _watch_threads:
        with _lock:
            if not _watch_threads:
                _watch_threads.append(
                    threading.Thread(target=_report_hung_calls, name="calls", daemon=True)
                )
                _watch_threads[0].start()


def _report_hung_calls() -> None:
    reported: set[_RunningCall] = set()
    while True:
        time.sleep(WATCH_INTERVAL_S)
        for call in set(_find_hung_calls()) - reported:
            reported.add(call)
            fault = f"has not returned for {time.monotonic() - call.since:.0f} s"
            if call.slow:
                message = "%s: %s %s. The job keeps waiting for it; Ctrl-C ends the job"
                logger.warning(message, call.boundary.name, call.method, fault)
            else:
                _on_hang(call.boundary.make_protocol_error(call.method, fault))


def _find_hung_calls() -> list[_RunningCall]:
    now = time.monotonic()
    return [call for call in list(_calls) if now - call.since >= HANG_S]


def has_hung_call() -> bool:
    """Return whether a call of a user's component has not returned for `HANG_S`."""
    return bool(_find_hung_calls())


def log_hang(error: MclabelError) -> None:
    """Log that a call hangs. This is the default action, because a library must not end the user's
    process.
    """
    logger.warning("%s", error)


_on_hang: Callable[[MclabelError], None] = log_hang


def report_hang(component_kind: str, fault: str, fallback_error: MclabelError) -> None:
    """Report that awaited work does not end: perform the action that `set_hang_action` has set.

    Args:
        component_kind: kind of the faulty component, a key of `mclabel.core.components.BUILT_IN`.
        fault: clause that describes the fault. Its subject is the method of a user's component of
            this kind that has been awaited longest.
        fallback_error: error to report if no such method is awaited.
    """
    call = next(
        (awaited for awaited in list(_awaited) if awaited.boundary.kind == component_kind), None
    )
    _on_hang(call.boundary.make_protocol_error(call.method, fault) if call else fallback_error)


@contextmanager
def set_hang_action(action: Callable[[MclabelError], None]) -> Iterator[None]:
    """Set the action for calls that do not return; the default action is a log message.

    Args:
        action: function to call once for each hanging call, from a separate thread.
    """
    global _on_hang
    previous, _on_hang = _on_hang, action
    try:
        yield
    finally:
        _on_hang = previous


def describe_value(value: object) -> str:
    """Describe a component's value for a message by its shortened representation and its type."""
    try:
        text = clip_text(repr(value))
    except Exception:  # a `repr` of a user's class may raise anything
        return f"a {type(value).__name__}"
    return "None" if value is None else f"{text} ({type(value).__name__})"


def clip_text(text: str, max_characters: int = MAX_SHOWN) -> str:
    """Return a text on one line of at most `max_characters` printable characters."""
    line = " ".join(text.split())
    line = "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in line
    )
    return line if len(line) <= max_characters else line[: max_characters - 1] + "…"


def _describe_error_location(error: BaseException) -> str:
    """Return the file and line where an error's traceback last passes through the component's own
    file.
    """
    frames = traceback.extract_tb(error.__traceback__)
    package = str(Path(__file__).parents[1])
    component_frames = [frame for frame in frames if not frame.filename.startswith(package)]
    if not component_frames:
        return ""
    last = [frame for frame in component_frames if frame.filename == component_frames[0].filename][
        -1
    ]
    return f" at {Path(last.filename).name}:{last.lineno}"
