"""No pattern that meets a model's text takes more time than grows with the text's length."""

from __future__ import annotations

import ast
import importlib
import json
import math
import re
import resource
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
LIMIT_S, MAX_S = 0.05, 2.0
"""What takes less for `SIZE` characters is not slow; what takes more than the latter is."""
NUM_ATTACKS = 80
SIZE = 20_000
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


def seconds(call: Callable[[Any], Any], text: Any) -> float:
    """Seconds of a processor that a call and what it yields take; infinity beyond `MAX_S`."""

    def end(*_: object) -> None:
        raise TimeoutError

    before, began = signal.signal(signal.SIGVTALRM, end), time.process_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_S)
    try:
        found = call(text)
        if isinstance(found, Iterator):
            deque(found, 0)
    except TimeoutError:
        return math.inf
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return time.process_time() - began


def _like(pattern: Pattern, text: str) -> str | bytes:
    return text if isinstance(pattern.pattern.pattern, str) else text.encode()


def slow_attack(pattern: Pattern) -> tuple[str, Attack] | None:
    """A call and an attack under which a pattern takes more than linear time, if one is found."""
    for attack in attacks(pattern.pattern, number=NUM_ATTACKS):
        short, text = (_like(pattern, attack.text(size)) for size in (SIZE // 4, SIZE))
        for name in sorted(pattern.calls):
            is_one = name in ("match", "fullmatch", "search")
            call = getattr(pattern.pattern, name if is_one else "finditer")
            took = seconds(call, text)
            if took > LIMIT_S and took > 8 * seconds(call, short):
                return name, attack
    return None


PATTERNS = list(package_patterns())


@pytest.mark.parametrize("module", dict.fromkeys(one.module for one in PATTERNS))
def test_time_grows_with_the_length_and_no_faster(module: str) -> None:
    for pattern in PATTERNS:
        if pattern.module == module:
            assert slow_attack(pattern) is None, pattern.name


@pytest.mark.parametrize(
    ("pattern", "call"),
    [
        (r"(?:\s|[a-z]+)+", "fullmatch"),
        (r"\s+$", "search"),
        (r"a*b?a*c", "match"),
        (r"\(.*\)", "finditer"),
        (r"\d{1,3}(?:,\d{3})+(?![^(]*\))", "sub"),
        (r"(\d+)\1+!", "fullmatch"),
    ],
)
def test_slow_patterns_are_found(pattern: str, call: str) -> None:
    assert slow_attack(Pattern("", re.compile(pattern), frozenset({call}))) is not None


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
