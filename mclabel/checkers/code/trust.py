"""Log of comparisons that a program decided itself, which limit the trust in passed tests.

A program defines how its own objects compare, so it could make any comparison true. If the tests
pass because the program compared an object with a value of the tests, there is no verdict. If they
pass because the program compared two of its own objects, the verdict is weak. The module uses only
the standard library, because it runs in the sandbox.
"""

from __future__ import annotations

import random
from typing import Any

from mclabel.checkers.code.proxies import ARITHMETIC, COMPARISONS, References, RequestSender

_PARTS = frozenset({
    "__getitem__", "__iter__", "__next__", "__len__", "__hash__", "__call__", "__enter__",
    "__exit__",
})  # fmt: skip
"""Special methods that read an object's contents instead of comparing the object itself."""


class TrustLog:
    """Record of the untrusted results in one run of the tests."""

    def __init__(self, sender: RequestSender, references: References) -> None:
        """Create an empty log.

        Args:
            sender: sends requests to the program's process.
            references: references of the tests' process, which tell proxies from other values.
        """
        self._sender, self._references = sender, references
        self._derived: set[int] = set()
        self.unhandled: list[BaseException] = []
        """Exceptions of the program that no handler of the tests has caught. Python itself
        suppresses some of them, for example StopIteration inside `all(map(f, values))`."""
        self.is_weak = False
        """True if the program's code compared two of its own objects."""
        self.is_claimed = False
        """True if the program's code compared one of its objects with a value of the tests."""

    def record_caught_exception(self, error: BaseException | None) -> None:
        """Record that a handler of the tests has caught an exception.

        The exception and its causes are removed from `unhandled`.
        """
        pending, seen = [error], set[int]()
        while pending:
            if (caught := pending.pop()) is not None and id(caught) not in seen:
                seen.add(id(caught))
                pending += [caught.__context__, caught.__cause__]
        self.unhandled = [error for error in self.unhandled if id(error) not in seen]

    def choose_trusted_result(
        self, proxy: Any, name: str, args: tuple[Any, ...], value: Any
    ) -> Any:
        """Return a result that the tests may trust for a special method of the program.

        An untrusted result is replaced, or recorded in `is_weak` or `is_claimed`.

        Args:
            proxy: the proxy of the program's object.
            name: name of the special method.
            args: positional arguments that the tests passed.
            value: result that the program's code returned.
        """
        if value is NotImplemented:
            return value
        if args and name in COMPARISONS | {"__contains__"}:
            return self._check_comparison(proxy, name, args[0], bool(value))
        is_given = bool(args) and name in ARITHMETIC and not self._references.is_proxy(args[0])
        if is_given or (id(proxy) in self._derived and name not in _PARTS):
            # The program chooses the result of arithmetic with a value of the tests: the
            # difference from an expected value could be 0 whatever the answer.
            if self._references.is_proxy(value):
                self._derived.add(id(value))
            else:
                self.is_claimed = True
        return value

    def _check_comparison(self, proxy: Any, name: str, other: Any, value: bool) -> bool:
        """Return a result that the tests may trust for a comparison by the program's code.

        If an object equals or contains even a random value, the program compares dishonestly, and
        the result is reversed.

        Args:
            proxy: the proxy of the program's object.
            name: name of the special method.
            other: value with which the object was compared.
            value: result that the program's code returned.
        """
        if proxy is other:
            return value
        if name in ("__eq__", "__ne__", "__contains__"):
            result_if_same = name != "__ne__"
            if value is not result_if_same:
                return value
            if self._compare_by_program(proxy, name, _make_decoy(other)) is result_if_same:
                return not value
        self.is_weak = True
        if name != "__contains__" and not self._references.is_proxy(other):
            self.is_claimed = True
        return value

    def _compare_by_program(self, proxy: Any, name: str, other: Any) -> bool | None:
        """Return the result of the program's own comparison of an object with a value.

        It is None if the comparison fails or is not implemented.
        """
        try:
            value = self._sender.request_call("special", proxy, name, (other,), {})
            return None if value is NotImplemented else bool(value)
        except Exception as error:  # for example an attribute that the value lacks
            self.record_caught_exception(error)
            return None


def _make_decoy(value: Any) -> Any:
    """Return a random value of the same type as `value`, which no program can predict."""
    number = random.SystemRandom().getrandbits(40)
    if isinstance(value, bool):
        return f"{number:x}"
    if isinstance(value, int | float):
        return value + number + 1_000_003
    if isinstance(value, list | tuple):
        return type(value)([*value, number])
    return f"{number:x}"
