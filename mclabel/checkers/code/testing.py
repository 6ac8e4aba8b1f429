"""Runs the tests of a problem: statements, `check`, functions and classes as pytest has them.

pytest itself is not in the box: `_Pytest` has what tests of functions use of it. Exceptions that a
handler of the tests catches are noted, since Python's own functions swallow some in silence, as
`all(map(f, values))` does with StopIteration. Standard library only: the module runs in the box.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import functools
import importlib.machinery
import inspect
import math
import re
import sys
import types
import unittest
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

HANDLED = "handled_by_the_tests"
"""Name of the function that notes that a handler has caught an exception."""


class _MissingType(type):
    """The class of what stands for names of packages that are not there.

    Nothing is an instance of them, since a program cannot import them either; all other use ends
    the tests.
    """

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _missing(f"{cls.__module__}.{cls.__qualname__}".removeprefix(".") + f".{name}")

    def _use(cls, *args: Any, **kwargs: Any) -> Any:
        package = cls.__module__.partition(".")[0]
        raise CannotRun(f"the tests need {package}, which is not among Python's own modules")

    __call__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __neg__ = _use
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __iter__ = __getitem__ = _use
    __hash__ = type.__hash__


def _missing(name: str) -> Any:
    module, _, rest = name.partition(".")
    return _MissingType(rest, (), {"__module__": module})


class _MissingModules:
    """Finds modules that are not there, after all others that find modules."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> Any:
        module = types.ModuleType(spec.name)
        vars(module)["__getattr__"] = lambda name: _missing(f"{spec.name}.{name}")
        return module

    def exec_module(self, module: Any) -> None:
        pass


def allow_missing_modules() -> None:
    """Let tests import packages that are not there, as long as they do not need them."""
    sys.meta_path.append(_MissingModules())


class TestFailed(Exception):
    """A test that did not pass."""

    def __init__(self, label: object, error: BaseException) -> None:
        """Keep which test it was, and what it raised."""
        super().__init__(label)
        self.label, self.error = label, error


class CannotRun(BaseException):
    """Tests that need what there is not in the box; its text says what."""


def run_tests(
    job: Mapping[str, Any], names: dict[str, Any], handled: Callable[[BaseException | None], None]
) -> None:
    """Run all tests of a job.

    Args:
        job: `before`, `setup`, `tests`, `check`, `calls` and `modules` of the gold.
        names: the global names that the tests see, the program's among them.
        handled: notes that the tests' own code has caught an exception.

    Raises:
        TestFailed: a test does not pass.
        CannotRun: there is not what the tests need.
    """
    names[HANDLED] = lambda: handled(sys.exc_info()[1])
    _note_handlers_of_modules(handled)
    names["__name__"] = "__main__"
    sys.modules["pytest"] = _Pytest(handled)
    unittest.main = lambda *args, **kwargs: None  # type: ignore[assignment]
    for module in job["modules"]:
        names.setdefault(module, importlib.import_module(module))
    for label, test in _tests(job, names):
        try:
            test()
        except (TestFailed, CannotRun):
            raise
        except BaseException as error:
            at = _failed_assertion(error, job) if label is None else label
            raise TestFailed(at, error) from None


def _tests(
    job: Mapping[str, Any], names: dict[str, Any]
) -> Iterator[tuple[object, Callable[[], Any]]]:
    """All tests with their labels, None for assertions of the set-up."""
    yield None, functools.partial(exec, _compiled(job["setup"], "<setup>"), names)
    for index, source in enumerate(job["tests"]):
        yield index, functools.partial(exec, _compiled(source, "<tests>"), names)
    if job["calls"]:
        compare = _Comparison(names[job["names"][0]], job["is_wrapped"], job["tolerance"])
        for index, (arguments, wanted) in enumerate(job["calls"]):
            yield index, functools.partial(compare.check, arguments, wanted)
    if job["check"]:
        yield None, lambda: names["check"](eval(job["check"], names))
    yield from _collected(names)


class _Comparison:
    """Compares results of a function with the outputs of a gold."""

    def __init__(self, function: Any, is_wrapped: bool, tolerance: float) -> None:
        self._function, self._tolerance = function, tolerance
        self._readings: list[Callable[[Any], Any]] = [lambda output: output]
        if is_wrapped:
            self._readings.append(lambda output: output[0])

    def check(self, arguments: list[Any], output: Any) -> None:
        """Call the function; one reading of the outputs must fit all of its results."""
        found = self._function(*arguments)
        self._readings = [
            read for read in self._readings if results_match(found, read(output), self._tolerance)
        ]
        assert self._readings


def results_match(found: Any, wanted: Any, tolerance: float) -> bool:
    """Whether the result of a call is what was wanted, as far as JSON can say it.

    Args:
        found: the result, in which tuples count as lists and keys as texts.
        wanted: from JSON.
        tolerance: absolute, or relative to what is wanted, of numbers that are no integers.
    """
    if isinstance(found, list | tuple) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(
            results_match(*pair, tolerance) for pair in zip(found, wanted, strict=True)
        )
    if isinstance(found, dict) and isinstance(wanted, dict):
        texts = {str(key): value for key, value in found.items()}
        return texts.keys() == wanted.keys() and all(
            results_match(texts[key], wanted[key], tolerance) for key in wanted
        )
    if isinstance(wanted, float) and isinstance(found, float | int):
        if math.isnan(wanted):
            return math.isnan(found)
        return found == wanted or abs(found - wanted) <= tolerance * max(1.0, abs(wanted))
    return bool(found == wanted)


def _compiled(source: str, name: str) -> Any:
    """The code of a source whose handlers note what they catch."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        is_exit = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in (
            "__exit__",
            "__aexit__",
        )
        if is_exit or isinstance(node, ast.ExceptHandler):
            noted = ast.parse(f"{HANDLED}()").body[0]
            ast.increment_lineno(noted, node.body[0].lineno - 1)  # type: ignore[attr-defined]
            node.body.insert(0, noted)  # type: ignore[attr-defined]
    return compile(tree, name, "exec")


def _note_handlers_of_modules(handled: Callable[[BaseException | None], None]) -> None:
    """Note what the standard library's contexts catch, which the tests name themselves."""
    for kind in (contextlib.suppress, unittest.case._AssertRaisesContext):
        ended = kind.__exit__

        def noted(own: Any, *raised: Any, ended: Any = ended) -> Any:
            if is_caught := ended(own, *raised):
                handled(raised[1])
            return is_caught

        setattr(kind, "__exit__", noted)  # noqa: B010


def _failed_assertion(error: BaseException, job: Mapping[str, Any]) -> int:
    """Which assertion of the set-up it was, counted from 0."""
    asserts = [
        node.lineno for node in ast.walk(ast.parse(job["setup"])) if isinstance(node, ast.Assert)
    ]
    place, trace = 0, error.__traceback__
    while trace is not None:
        place = trace.tb_lineno if trace.tb_frame.f_code.co_filename == "<setup>" else place
        trace = trace.tb_next
    return sum(line < place for line in sorted(asserts))


def _collected(names: Mapping[str, Any]) -> Iterator[tuple[str, Callable[[], None]]]:
    """The functions and classes among names that pytest would run, in their order."""
    own = {
        name: value
        for name, value in names.items()
        if isinstance(value, types.FunctionType | type) and value.__module__ == "__main__"
    }
    fixtures = _fixtures(own)
    for name, value in own.items():
        if isinstance(value, types.FunctionType):
            if name.startswith("test"):
                yield name, functools.partial(_run_function, value, fixtures)
        elif issubclass(value, unittest.TestCase):
            yield name, functools.partial(_run_test_case, value)
        elif name.startswith("Test") and "__init__" not in vars(value):
            for method in [one for one in dir(value) if one.startswith("test")]:
                yield method, functools.partial(_run_method, value, method, fixtures)


def _fixtures(functions: Mapping[str, Any]) -> dict[str, Any]:
    return {
        value._fixture_name or name: value
        for name, value in functions.items()
        if hasattr(value, "_fixture_name")
    }


def _run_test_case(kind: type[unittest.TestCase]) -> None:
    result = _Result()
    suite = unittest.TestSuite()
    suite.addTests(unittest.defaultTestLoader.loadTestsFromTestCase(kind))
    suite.run(result)
    if result.first is not None:
        label, error = result.first
        raise error if isinstance(error, CannotRun) else TestFailed(label, error)


class _Result(unittest.TestResult):
    """Stops at the first test that does not pass, and keeps what it raised."""

    first: tuple[str, BaseException] | None = None

    def addFailure(self, test: Any, err: Any) -> None:
        self._keep(test, err[1])

    def addError(self, test: Any, err: Any) -> None:
        self._keep(test, err[1])

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self._keep(test, err[1])

    def addUnexpectedSuccess(self, test: Any) -> None:
        self._keep(test, AssertionError())

    def _keep(self, test: Any, error: BaseException) -> None:
        if self.first is None:
            self.first = (getattr(test, "_testMethodName", "setUp"), error)
        self.stop()


def _run_method(kind: type, name: str, fixtures: Mapping[str, Any]) -> None:
    own = kind()
    for before in ("setup_class", "setup_method"):
        if hasattr(own, before):
            function = getattr(own, before)
            function(*[None] * len(inspect.signature(function).parameters))
    methods = {one: getattr(own, one) for one in dir(kind) if not one.startswith("__")}
    _run_function(getattr(own, name), {**fixtures, **_fixtures(methods)})
    if hasattr(own, "teardown_method"):
        function = own.teardown_method
        function(*[None] * len(inspect.signature(function).parameters))


def _run_function(test: Any, fixtures: Mapping[str, Any]) -> None:
    """Run a test function once for each row of its parameters."""
    for row in getattr(test, "_rows", [{}]):
        with contextlib.suppress(_Skipped), contextlib.ExitStack() as stack:
            made: dict[str, Any] = dict(row)
            for name, fixture in fixtures.items():
                if fixture._is_autouse:
                    _made(name, fixtures, made, stack)
            parameters = inspect.signature(test).parameters
            given = {
                name: _made(name, fixtures, made, stack)
                for name, one in parameters.items()
                if one.default is one.empty
            }
            _finished(test(**given))


def _made(
    name: str, fixtures: Mapping[str, Any], made: dict[str, Any], stack: contextlib.ExitStack
) -> Any:
    """The value of a fixture or parameter."""
    if name not in made:
        if name not in fixtures:
            raise CannotRun(f"the tests need pytest's fixture {name}, which is not there")
        fixture = fixtures[name]
        needed = inspect.signature(fixture).parameters
        value = fixture(**{one: _made(one, fixtures, made, stack) for one in needed})
        if inspect.isgenerator(value):
            generator, value = value, next(value)
            stack.callback(next, generator, None)
        made[name] = _finished(value)
    return made[name]


def _finished(value: Any) -> Any:
    return asyncio.run(value) if inspect.iscoroutine(value) else value


class _Skipped(BaseException):
    """A test that skips itself."""


class _Pytest(types.ModuleType):
    """What tests of functions use of pytest."""

    def __init__(self, handled: Callable[[BaseException | None], None]) -> None:
        super().__init__("pytest")
        self.mark, self._handled = _Mark(), handled

    def raises(self, expected: Any, *call: Any, match: str | None = None, **kwargs: Any) -> Any:
        context = _Raises(expected, match, self._handled)
        if not call:
            return context
        with context:
            call[0](*call[1:], **kwargs)
        return context

    def approx(self, expected: Any, rel: float | None = None, abs: float | None = None) -> Any:
        return _Approximately(expected, rel, abs)

    def fixture(
        self, function: Any = None, *, name: str = "", autouse: bool = False, **_: Any
    ) -> Any:
        def mark(own: Any) -> Any:
            own._fixture_name, own._is_autouse = name, autouse
            return own

        return mark if function is None else mark(function)

    def param(self, *values: Any, **_: Any) -> Any:
        return values if len(values) != 1 else values[0]

    def fail(self, reason: str = "", **_: Any) -> None:
        raise AssertionError(reason)

    def skip(self, *_: Any, **__: Any) -> None:
        raise _Skipped

    def importorskip(self, name: str, **_: Any) -> Any:
        return importlib.import_module(name)

    def main(self, *_: Any, **__: Any) -> int:
        return 0


SUPPORTED = frozenset(name for name in vars(_Pytest) if not name.startswith("_")) | {"mark"}
"""Names of pytest that tests may use."""


class _Mark:
    """`pytest.mark`: rows of parameters and skips count, other marks do not."""

    def parametrize(self, names: Any, rows: Any, **_: Any) -> Any:
        keys = [one.strip() for one in names.split(",")] if isinstance(names, str) else list(names)
        made = [dict(zip(keys, row if len(keys) > 1 else (row,), strict=True)) for row in rows]

        def mark(test: Any) -> Any:
            test._rows = [{**one, **two} for one in getattr(test, "_rows", [{}]) for two in made]
            return test

        return mark

    def skip(self, *given: Any, **_: Any) -> Any:
        def mark(test: Any) -> Any:
            test._rows = []
            return test

        return mark(given[0]) if given and callable(given[0]) else mark

    def skipif(self, condition: Any, **_: Any) -> Any:
        return self.skip() if condition else lambda test: test

    def __getattr__(self, name: str) -> Any:
        def mark(*given: Any, **_: Any) -> Any:
            return given[0] if given and callable(given[0]) else lambda test: test

        return mark


class _Raises:
    """The context in which an exception must be raised."""

    def __init__(self, expected: Any, match: str | None, handled: Any) -> None:
        self._expected, self._match, self._handled = expected, match, handled
        self.value: BaseException | None = None

    @property
    def type(self) -> Any:
        return type(self.value)

    def __enter__(self) -> _Raises:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> bool:
        if error is None:
            raise AssertionError("nothing was raised")
        if not isinstance(error, self._expected):
            return False
        self.value = error
        self._handled(error)
        if self._match is not None and not re.search(self._match, str(error)):
            raise AssertionError("another message")
        return True


class _Approximately:
    """Equal to numbers nearby, and to containers of them."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, expected: Any, rel: float | None, absolute: float | None) -> None:
        self._expected, self._rel, self._abs = expected, rel, absolute

    def __eq__(self, found: Any) -> bool:
        expected = self._expected
        if isinstance(expected, Mapping):
            return isinstance(found, Mapping) and found.keys() == expected.keys() and all(
                self._near(found[key], value) for key, value in expected.items()
            )  # fmt: skip
        if isinstance(expected, Sequence) and not isinstance(expected, str):
            return isinstance(found, Sequence) and len(found) == len(expected) and all(
                self._near(*pair) for pair in zip(found, expected, strict=True)
            )  # fmt: skip
        return self._near(found, expected)

    def _near(self, found: Any, expected: Any) -> bool:
        if not isinstance(expected, float | int | complex):
            return bool(found == expected)
        if not isinstance(found, float | int | complex):
            return bool(found == expected)
        if found == expected:
            return True
        relative = self._rel if self._rel is not None else 0.0 if self._abs is not None else 1e-6
        absolute = self._abs if self._abs is not None else 1e-12
        return abs(found - expected) <= max(relative * abs(expected), absolute)
