"""No pattern that meets a model's text takes more than linear time."""

from __future__ import annotations

import ast
import importlib
import json
import re
import resource
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

import mclabel
from tests.support.attacks import Attack, attacks

HANGING = [
    ("no real solutions because the discriminant is -3", "7"),
    ("the list of the three coordinate values of d under M2", "[2, 3, 4]"),
    ("The matrix is invertible because the determinant equals -2", "7"),
    ("5 apples and some other fruits that were left over 3", "7"),
    ("all positive integers n not divisible by 3", "7"),
    ("the length of the longer diagonal of the given rhombus in metres!", "7"),
]
"""Each took minutes or more in the caller's own process."""
ROOT = Path(mclabel.__file__).parent
NUM_ATTACKS = 120
LENGTHS = (10_000, 40_000)
"""Characters of the text that is tried first, and of the one that decides."""
SUSPICIOUS_S, MAX_S = 0.02, 0.4
"""Seconds of CPU time for the two."""
_CALLS = frozenset("match fullmatch search findall finditer sub subn split".split())


@dataclass(frozen=True)
class Pattern:
    """A compiled pattern of the package and what it is called for."""

    name: str
    pattern: re.Pattern[str]
    calls: frozenset[str]

    @property
    def module(self) -> str:
        return self.name.rpartition(".")[0]


def package_patterns() -> Iterator[Pattern]:
    """Every compiled pattern in a module of the package, alone or in a table."""
    for path in sorted(ROOT.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "re.compile(" not in source:
            continue
        module = ".".join(("mclabel", *path.relative_to(ROOT).with_suffix("").parts))
        calls = _calls(source)
        for name, value in vars(importlib.import_module(module)).items():
            for pattern in _within(value) if name in calls else ():
                table = not isinstance(value, re.Pattern)
                yield Pattern(f"{module}.{name}", pattern, calls["" if table else name])


def _within(value: object) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _within(item)


def _calls(source: str) -> dict[str, frozenset[str]]:
    """The methods that are called on each name; `finditer` where it is handed on.

    Under no name: those called on local names, which is how tables are used.
    """
    tree = ast.parse(source)
    found: dict[str, set[str]] = {}
    owners: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owners.add(id(node.value))
            if node.attr in _CALLS:
                name = node.value.id
                found.setdefault("" if name.islower() else name, set()).add(node.attr)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in owners:
            found.setdefault(node.id, set()).add("finditer")
    return {name: frozenset(calls) for name, calls in found.items()}


class _Slow(Exception):
    """The limit on CPU time was reached."""


def _limited(call: Callable[[], object], cpu_s: float) -> bool:
    """Return whether a call ends within a limit on the CPU time of this process."""

    def stop(*_: object) -> NoReturn:
        raise _Slow

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, cpu_s)
    try:
        call()
    except _Slow:
        return False
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return True


def _matching(pattern: re.Pattern[Any], name: str, text: str) -> Callable[[], object]:
    """Return a call of one of a pattern's methods on a text, to its end."""
    given = text if isinstance(pattern.pattern, str) else text.encode("utf-8", "surrogatepass")
    if name in ("sub", "subn"):
        return lambda: getattr(pattern, name)(given[:0], given)
    if name == "finditer":
        return lambda: deque(pattern.finditer(given), 0)
    return lambda: getattr(pattern, name)(given)


def slow_attack(pattern: Pattern) -> tuple[str, Attack] | None:
    """Return a call and an attack that take more than linear time, if there are any.

    Linear patterns take some milliseconds for the short text, and at most a tenth of the limit
    for the long one, which quadratic ones exceed.
    """
    for attack in attacks(pattern.pattern, number=NUM_ATTACKS):
        for call in sorted(pattern.calls):
            short, long = (_matching(pattern.pattern, call, attack.text(n)) for n in LENGTHS)
            if not _limited(short, SUSPICIOUS_S) and not _limited(long, MAX_S):
                return call, attack
    return None


PATTERNS = list(package_patterns())


@pytest.mark.parametrize("module", dict.fromkeys(pattern.module for pattern in PATTERNS))
def test_time_grows_with_the_length_and_no_faster(module: str) -> None:
    patterns = [pattern for pattern in PATTERNS if pattern.module == module]
    assert {one.name: slow for one in patterns if (slow := slow_attack(one))} == {}


@pytest.mark.parametrize(
    ("pattern", "call", "is_linear"),
    [
        (r"(?:\s|[a-z]+)+", "fullmatch", False),
        (r"(a|a)*b", "match", False),
        (r"a*b?a*c", "match", False),
        (r"a*+a*+b", "match", True),
        (r"\s+$", "search", False),
        (r"(?<!\s)\s++$", "search", True),
        (r"\(.*\)", "finditer", False),
        (r"\d{1,3}(?:,\d{3})+(?![^(]*\))", "sub", False),
        (r"(\d+)\1+!", "fullmatch", False),
        (r"\([^()]*,[^()]*\)", "search", False),
        (r"\([^(),]*+,[^()]*+\)", "search", True),
    ],
)
def test_slow_patterns_are_found(pattern: str, call: str, is_linear: bool) -> None:
    found = slow_attack(Pattern("", re.compile(pattern), frozenset({call})))
    assert (found is None) is is_linear


def test_english_beside_a_gold_does_not_hang() -> None:
    """In a process of its own with a limit on CPU time, since it would never come back."""
    script = "import json, sys; from mclabel.answers import grade\n"
    script += "for pair in json.load(sys.stdin): print(grade(*pair).verdict.value)"
    result = subprocess.run(
        [sys.executable, "-c", script],
        input=json.dumps(HANGING),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (20, 20)),
    )
    assert result.returncode == 0
    assert "right" not in result.stdout.split()
