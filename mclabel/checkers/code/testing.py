"""Runs a problem's tests: statements, `check`, and test functions and classes of pytest.

pytest itself is not in the sandbox. `_PytestReplacement` replaces the parts of pytest that
tests use. Exceptions that the tests catch are recorded in `trust`. The module uses only the
standard library, because it runs in the sandbox.
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
"""Name of the function that is called in each exception handler of the tests, to record that the
tests have caught an exception."""


class _MissingNameType(type):
    """Metaclass of the placeholders for names of missing packages.

    `isinstance` returns False for a placeholder, since a program cannot import the package either.
    Any other use of a placeholder ends the tests.
    """

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _make_placeholder_type(
            f"{cls.__module__}.{cls.__qualname__}".removeprefix(".") + f".{name}"
        )

    def _refuse_use(cls, *args: Any, **kwargs: Any) -> Any:
        package = cls.__module__.partition(".")[0]
        raise MissingRequirement(
            f"the tests need {package}, which is not in Python's standard library"
        )

    __call__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __neg__ = _refuse_use
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __iter__ = __getitem__ = (
        _refuse_use
    )
    __hash__ = type.__hash__


def _make_placeholder_type(dotted_name: str) -> Any:
    module, _, rest = dotted_name.partition(".")
    return _MissingNameType(rest, (), {"__module__": module})


class _MissingModules:
    """Import hook that creates placeholders for missing modules. It must be the last hook."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> Any:
        module = types.ModuleType(spec.name)
        vars(module)["__getattr__"] = lambda name: _make_placeholder_type(f"{spec.name}.{name}")
        return module

    def exec_module(self, module: Any) -> None:
        pass


def allow_missing_modules() -> None:
    """Let tests import packages that are missing, as long as they do not use them."""
    sys.meta_path.append(_MissingModules())


class TestFailed(Exception):
    """A test failed."""

    def __init__(self, label: object, error: BaseException) -> None:
        """Store which test failed.

        Args:
            label: index or name of the test.
            error: exception that the test raised.
        """
        super().__init__(label)
        self.label, self.error = label, error


class MissingRequirement(BaseException):
    """The tests need something that the sandbox does not have, which the text of the exception
    names.
    """


def run_tests(
    job: Mapping[str, Any],
    names: dict[str, Any],
    record_caught_exception: Callable[[BaseException | None], None],
) -> None:
    """Run all tests of a job.

    Args:
        job: `before`, `setup`, `tests`, `check`, `calls` and `modules` of the gold.
        names: global names of the tests, including those of the program.
        record_caught_exception: function that records that the tests have caught an exception.

    Raises:
        TestFailed: a test fails.
        MissingRequirement: the sandbox lacks something that the tests need.
    """
    names[HANDLED] = lambda: record_caught_exception(sys.exc_info()[1])
    _record_library_handlers(record_caught_exception)
    names["__name__"] = "__main__"
    sys.modules["pytest"] = _PytestReplacement(record_caught_exception)
    unittest.main = lambda *args, **kwargs: None  # type: ignore[assignment]
    for module in job["modules"]:
        names.setdefault(module, importlib.import_module(module))
    for label, test in _iterate_tests(job, names):
        try:
            test()
        except (TestFailed, MissingRequirement):
            raise
        except BaseException as error:
            at = _find_failed_assertion(error, job) if label is None else label
            raise TestFailed(at, error) from None


def _iterate_tests(
    job: Mapping[str, Any], names: dict[str, Any]
) -> Iterator[tuple[object, Callable[[], Any]]]:
    """Yield each test with its label, which is None for the set-up and `check`."""
    yield None, functools.partial(exec, _compile_with_recording(job["setup"], "<setup>"), names)
    for index, source in enumerate(job["tests"]):
        yield index, functools.partial(exec, _compile_with_recording(source, "<tests>"), names)
    if job["calls"]:
        compare = _OutputComparison(names[job["names"][0]], job["is_wrapped"], job["tolerance"])
        for index, (arguments, wanted) in enumerate(job["calls"]):
            yield index, functools.partial(compare.check, arguments, wanted)
    if job["check"]:
        yield None, lambda: names["check"](eval(job["check"], names))
    yield from _collect_tests(names)


class _OutputComparison:
    """Comparison of a function's results with the outputs of a gold."""

    def __init__(self, function: Any, is_wrapped: bool, tolerance: float) -> None:
        self._function, self._tolerance = function, tolerance
        self._readings: list[Callable[[Any], Any]] = [lambda output: output]
        if is_wrapped:
            self._readings.append(lambda output: output[0])

    def check(self, arguments: list[Any], output: Any) -> None:
        """Call the function and compare its result with the expected output.

        If all outputs are lists of one item, either the lists or their items may be the expected
        results, but the same for all calls.

        Args:
            arguments: arguments of the call.
            output: expected output.
        """
        result = self._function(*arguments)
        self._readings = [
            read for read in self._readings if results_match(result, read(output), self._tolerance)
        ]
        assert self._readings


def results_match(result: Any, wanted: Any, tolerance: float) -> bool:
    """Return whether the result of a call equals the expected result.

    Args:
        result: result of the call. Tuples count as lists and keys as texts, because the expected
            result is JSON.
        wanted: expected result, parsed from JSON.
        tolerance: largest absolute or relative difference from an expected float.
    """
    if isinstance(result, list | tuple) and isinstance(wanted, list):
        return len(result) == len(wanted) and all(
            results_match(*pair, tolerance) for pair in zip(result, wanted, strict=True)
        )
    if isinstance(result, dict) and isinstance(wanted, dict):
        texts = {str(key): value for key, value in result.items()}
        return texts.keys() == wanted.keys() and all(
            results_match(texts[key], wanted[key], tolerance) for key in wanted
        )
    if isinstance(wanted, float) and isinstance(result, float | int):
        if math.isnan(wanted):
            return math.isnan(result)
        return result == wanted or abs(result - wanted) <= tolerance * max(1.0, abs(wanted))
    return bool(result == wanted)


def _compile_with_recording(source: str, name: str) -> Any:
    """Compile a source, adding a call to each exception handler and each `__exit__` method.

    The added call records the exception that the handler or method catches.
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        is_exit = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in (
            "__exit__",
            "__aexit__",
        )
        if is_exit or isinstance(node, ast.ExceptHandler):
            record_call = ast.parse(f"{HANDLED}()").body[0]
            ast.increment_lineno(record_call, node.body[0].lineno - 1)  # type: ignore[attr-defined]
            node.body.insert(0, record_call)  # type: ignore[attr-defined]
    return compile(tree, name, "exec")


def _record_library_handlers(
    record_caught_exception: Callable[[BaseException | None], None],
) -> None:
    """Patch `contextlib.suppress` and unittest's `assertRaises` to report caught exceptions.

    They then call `record_caught_exception` with every exception that they catch. The tests expect
    such an exception, so it is no failure.
    """
    for kind in (contextlib.suppress, unittest.case._AssertRaisesContext):
        original_exit = kind.__exit__

        def recording_exit(own: Any, *raised: Any, original_exit: Any = original_exit) -> Any:
            if is_caught := original_exit(own, *raised):
                record_caught_exception(raised[1])
            return is_caught

        setattr(kind, "__exit__", recording_exit)  # noqa: B010


def _find_failed_assertion(error: BaseException, job: Mapping[str, Any]) -> int:
    """Return the 0-based index of the failed assertion among the assertions of the set-up code."""
    asserts = [
        node.lineno for node in ast.walk(ast.parse(job["setup"])) if isinstance(node, ast.Assert)
    ]
    place, trace = 0, error.__traceback__
    while trace is not None:
        place = trace.tb_lineno if trace.tb_frame.f_code.co_filename == "<setup>" else place
        trace = trace.tb_next
    return sum(line < place for line in sorted(asserts))


def _collect_tests(names: Mapping[str, Any]) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the functions and classes that pytest would run, in order of definition."""
    own = {
        name: value
        for name, value in names.items()
        if isinstance(value, types.FunctionType | type) and value.__module__ == "__main__"
    }
    fixtures = _collect_fixtures(own)
    for name, value in own.items():
        if isinstance(value, types.FunctionType):
            if name.startswith("test"):
                yield name, functools.partial(_run_test_function, value, fixtures)
        elif issubclass(value, unittest.TestCase):
            yield name, functools.partial(_run_unittest_class, value)
        elif name.startswith("Test") and "__init__" not in vars(value):
            for method in [attribute for attribute in dir(value) if attribute.startswith("test")]:
                yield method, functools.partial(_run_test_method, value, method, fixtures)


def _collect_fixtures(functions: Mapping[str, Any]) -> dict[str, Any]:
    return {
        value._fixture_name or name: value
        for name, value in functions.items()
        if hasattr(value, "_fixture_name")
    }


def _run_unittest_class(test_class: type[unittest.TestCase]) -> None:
    result = _FirstFailureResult()
    suite = unittest.TestSuite()
    suite.addTests(unittest.defaultTestLoader.loadTestsFromTestCase(test_class))
    suite.run(result)
    if result.first_failure is not None:
        label, error = result.first_failure
        raise error if isinstance(error, MissingRequirement) else TestFailed(label, error)


class _FirstFailureResult(unittest.TestResult):
    """Test result that stops at the first failing test and stores its exception."""

    first_failure: tuple[str, BaseException] | None = None

    def addFailure(self, test: Any, err: Any) -> None:
        self._record_first_failure(test, err[1])

    addError = addFailure

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self._record_first_failure(test, err[1])

    def addUnexpectedSuccess(self, test: Any) -> None:
        self._record_first_failure(test, AssertionError())

    def _record_first_failure(self, test: Any, error: BaseException) -> None:
        if self.first_failure is None:
            self.first_failure = (getattr(test, "_testMethodName", "setUp"), error)
        self.stop()


def _run_test_method(test_class: type, name: str, fixtures: Mapping[str, Any]) -> None:
    instance = test_class()
    for before in ("setup_class", "setup_method"):
        if hasattr(instance, before):
            function = getattr(instance, before)
            function(*[None] * len(inspect.signature(function).parameters))
    methods = {
        attribute: getattr(instance, attribute)
        for attribute in dir(test_class)
        if not attribute.startswith("__")
    }
    _run_test_function(getattr(instance, name), {**fixtures, **_collect_fixtures(methods)})
    if hasattr(instance, "teardown_method"):
        function = instance.teardown_method
        function(*[None] * len(inspect.signature(function).parameters))


def _run_test_function(test: Any, fixtures: Mapping[str, Any]) -> None:
    """Run a test function once per row of its parameters."""
    for row in getattr(test, "_rows", [{}]):
        with contextlib.suppress(_Skipped), contextlib.ExitStack() as stack:
            values: dict[str, Any] = dict(row)
            for name, fixture in fixtures.items():
                if fixture._is_autouse:
                    _evaluate_fixture(name, fixtures, values, stack)
            parameters = inspect.signature(test).parameters
            arguments = {
                name: _evaluate_fixture(name, fixtures, values, stack)
                for name, parameter in parameters.items()
                if parameter.default is parameter.empty
            }
            _run_if_coroutine(test(**arguments))


def _evaluate_fixture(
    name: str, fixtures: Mapping[str, Any], values: dict[str, Any], stack: contextlib.ExitStack
) -> Any:
    """Return the value of a fixture or parameter."""
    if name not in values:
        if name not in fixtures:
            raise MissingRequirement(
                f"the tests need pytest's fixture {name}, which is not supported"
            )
        fixture = fixtures[name]
        needed = inspect.signature(fixture).parameters
        value = fixture(
            **{
                argument: _evaluate_fixture(argument, fixtures, values, stack)
                for argument in needed
            }
        )
        if inspect.isgenerator(value):
            generator, value = value, next(value)
            stack.callback(next, generator, None)
        values[name] = _run_if_coroutine(value)
    return values[name]


def _run_if_coroutine(value: Any) -> Any:
    return asyncio.run(value) if inspect.iscoroutine(value) else value


class _Skipped(BaseException):
    """A test skips itself."""


class _PytestReplacement(types.ModuleType):
    """Replacement of the module `pytest` for tests of functions."""

    def __init__(self, record_caught_exception: Callable[[BaseException | None], None]) -> None:
        super().__init__("pytest")
        self.mark, self._handled = _PytestMarkReplacement(), record_caught_exception

    def raises(self, expected: Any, *call: Any, match: str | None = None, **kwargs: Any) -> Any:
        context = _RaisesContext(expected, match, self._handled)
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


SUPPORTED = frozenset(name for name in vars(_PytestReplacement) if not name.startswith("_")) | {
    "mark"
}
"""Names of pytest that tests may use."""


class _PytestMarkReplacement:
    """Replacement of `pytest.mark`. Only `parametrize`, `skip` and `skipif` have an effect."""

    def parametrize(self, names: Any, rows: Any, **_: Any) -> Any:
        keys = (
            [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
        )
        new_rows = [dict(zip(keys, row if len(keys) > 1 else (row,), strict=True)) for row in rows]

        def mark(test: Any) -> Any:
            earlier_rows = getattr(test, "_rows", [{}])
            test._rows = [{**earlier, **row} for earlier in earlier_rows for row in new_rows]
            return test

        return mark

    def skip(self, *decorated: Any, **_: Any) -> Any:
        def mark(test: Any) -> Any:
            test._rows = []
            return test

        return mark(decorated[0]) if decorated and callable(decorated[0]) else mark

    def skipif(self, condition: Any, **_: Any) -> Any:
        return self.skip() if condition else lambda test: test

    def __getattr__(self, name: str) -> Any:
        def mark(*decorated: Any, **_: Any) -> Any:
            return decorated[0] if decorated and callable(decorated[0]) else lambda test: test

        return mark


class _RaisesContext:
    """Replacement of `pytest.raises`: a context manager in which an exception must be raised."""

    def __init__(self, expected: Any, match: str | None, record_caught_exception: Any) -> None:
        self._expected, self._match, self._handled = expected, match, record_caught_exception
        self.value: BaseException | None = None

    @property
    def type(self) -> Any:
        return type(self.value)

    def __enter__(self) -> _RaisesContext:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> bool:
        if error is None:
            raise AssertionError("no exception was raised")
        if not isinstance(error, self._expected):
            return False
        self.value = error
        self._handled(error)
        if self._match is not None and not re.search(self._match, str(error)):
            raise AssertionError("the exception has a different message")
        return True


class _Approximately:
    """Replacement of `pytest.approx`: a value that equals nearby numbers, or containers of them."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, expected: Any, rel: float | None, absolute: float | None) -> None:
        self._expected, self._rel, self._abs = expected, rel, absolute

    def __eq__(self, actual: Any) -> bool:
        expected = self._expected
        if isinstance(expected, Mapping):
            return isinstance(actual, Mapping) and actual.keys() == expected.keys() and all(
                self._is_number_near(actual[key], value) for key, value in expected.items()
            )  # fmt: skip
        if isinstance(expected, Sequence) and not isinstance(expected, str):
            return isinstance(actual, Sequence) and len(actual) == len(expected) and all(
                self._is_number_near(*pair) for pair in zip(actual, expected, strict=True)
            )  # fmt: skip
        return self._is_number_near(actual, expected)

    def _is_number_near(self, actual: Any, expected: Any) -> bool:
        numbers = float | int | complex
        if not isinstance(expected, numbers) or not isinstance(actual, numbers):
            return bool(actual == expected)
        if actual == expected:
            return True
        relative = self._rel if self._rel is not None else 0.0 if self._abs is not None else 1e-6
        absolute = self._abs if self._abs is not None else 1e-12
        return abs(actual - expected) <= max(relative * abs(expected), absolute)
