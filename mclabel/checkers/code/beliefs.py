"""What tests may believe of a program that says itself how its objects compare.

A program may claim anything of its own objects, and is told what they are compared with. So its
claims are noted: a verdict that rests on one is not right, and one that rests on comparisons of two
of its objects is weak. Noted are also exceptions of the program that no handler of the tests has
caught, since Python ends some loops by them. Standard library only: the module runs in the box.
"""

from __future__ import annotations

import random
from typing import Any

from mclabel.checkers.code.stand_ins import ARITHMETIC, COMPARISONS, Asker, References

_PARTS = frozenset({
    "__getitem__", "__iter__", "__next__", "__len__", "__hash__", "__call__", "__enter__",
    "__exit__",
})  # fmt: skip
"""Special methods by which tests look at what an object holds, rather than at what it is."""


class Beliefs:
    """What a program has claimed in one run of its tests."""

    def __init__(self, asker: Asker, references: References) -> None:
        """Start with nothing claimed.

        Args:
            asker: sends requests.
            references: know stand-ins.
        """
        self._asker, self._references = asker, references
        self._derived: set[int] = set()
        self.unhandled: list[BaseException] = []
        """Exceptions of the program that nothing is known to have caught."""
        self.is_weak = False
        """Whether two objects of the program were compared by its own code."""
        self.is_claimed = False
        """Whether code of the program compared an object of its own with a value of the tests."""

    def handled(self, error: BaseException | None) -> None:
        """Note that a handler of the tests has caught an exception, and with it its causes."""
        left, seen = [error], set[int]()
        while left:
            if (caught := left.pop()) is not None and id(caught) not in seen:
                seen.add(id(caught))
                left += [caught.__context__, caught.__cause__]
        self.unhandled = [error for error in self.unhandled if id(error) not in seen]

    def believed(self, own: Any, name: str, args: tuple[Any, ...], value: Any) -> Any:
        """Return what is believed of what a special method of the program gave.

        Args:
            own: stands for the object.
            name: of the method.
            args: of the tests.
            value: that it gave.
        """
        if value is NotImplemented:
            return value
        if args and name in COMPARISONS | {"__contains__"}:
            return self._compared(own, name, args[0], bool(value))
        is_given = bool(args) and name in ARITHMETIC and not self._references.is_stand_in(args[0])
        if is_given or (id(own) in self._derived and name not in _PARTS):
            # The difference from a value of the tests may be whatever the program wants it to be.
            if self._references.is_stand_in(value):
                self._derived.add(id(value))
            else:
                self.is_claimed = True
        return value

    def _compared(self, own: Any, name: str, other: Any, value: bool) -> bool:
        """Return the outcome of a comparison that code of the program has decided.

        What is equal to everything, or contains everything, is not believed.
        """
        if own is other:
            return value
        if name in ("__eq__", "__ne__", "__contains__"):
            says_same = name != "__ne__"
            if value is not says_same:
                return value
            if self._says(own, name, _decoy(other)) is says_same:
                return not value
        self.is_weak = True
        if name != "__contains__" and not self._references.is_stand_in(other):
            self.is_claimed = True
        return value

    def _says(self, own: Any, name: str, other: Any) -> bool | None:
        """Return what code of the program says of a value that it cannot have expected."""
        try:
            value = self._asker.called("special", own, name, (other,), {})
            return None if value is NotImplemented else bool(value)
        except Exception as error:  # such as for an attribute that the value lacks
            self.handled(error)
            return None


def _decoy(value: Any) -> Any:
    """Return a value of the same type that nobody could expect."""
    number = random.SystemRandom().getrandbits(40)
    if isinstance(value, bool):
        return f"{number:x}"
    if isinstance(value, int | float):
        return value + number + 1_000_003
    if isinstance(value, list | tuple):
        return type(value)([*value, number])
    return f"{number:x}"
