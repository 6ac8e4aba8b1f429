"""Every pattern that is applied to a model's text takes time linear in the length of the text."""

from __future__ import annotations

import ast
import importlib
import json
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import mclabel
from tests.support.ambiguity import Analysis

HANGING = [
    ("no real solutions because the discriminant is -3", "7"),
    ("the list of the three coordinate values of d under M2", "[2, 3, 4]"),
    ("The matrix is invertible because the determinant equals -2", "7"),
    ("5 apples and some other fruits that were left over 3", "7"),
    ("all positive integers n not divisible by 3", "7"),
    ("the length of the longer diagonal of the given rhombus in metres!", "7"),
]
"""Pairs, each of which took minutes or more in the caller's own process."""
ROOT = Path(mclabel.__file__).parent
_CALLS = frozenset("match fullmatch search findall finditer sub subn split".split())


@dataclass(frozen=True)
class Pattern:
    """A compiled pattern of the package, and the methods that are called on it."""

    name: str
    pattern: re.Pattern[str]
    calls: frozenset[str]

    @property
    def module(self) -> str:
        return self.name.rpartition(".")[0]


def package_patterns() -> Iterator[Pattern]:
    """Yield every compiled pattern in a module of the package, alone or in a table."""
    for path in sorted(ROOT.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "re.compile(" not in source:
            continue
        module = ".".join(("mclabel", *path.relative_to(ROOT).with_suffix("").parts))
        calls = _find_calls(source)
        for name, value in vars(importlib.import_module(module)).items():
            for pattern in _find_patterns(value) if name in calls else ():
                table = not isinstance(value, re.Pattern)
                yield Pattern(f"{module}.{name}", pattern, calls["" if table else name])


def _find_patterns(value: object) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _find_patterns(item)


def _find_calls(source: str) -> dict[str, frozenset[str]]:
    """Return the methods that are called on each name; a name passed on counts as `finditer`.

    The empty name holds methods that are called on local names, as for patterns in tables.
    """
    tree = ast.parse(source)
    calls_by_name: dict[str, set[str]] = {}
    owners: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owners.add(id(node.value))
            if node.attr in _CALLS:
                name = node.value.id
                calls_by_name.setdefault("" if name.islower() else name, set()).add(node.attr)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in owners:
            calls_by_name.setdefault(node.id, set()).add("finditer")
    return {name: frozenset(calls) for name, calls in calls_by_name.items()}


ATTACK = """
import json, re, sys
from tests.support.attacks import attacks

for written, flags, calls in json.load(sys.stdin):
    pattern = re.compile(written, flags)
    for text in [attack.text(50_000) for attack in attacks(pattern, number=100)]:
        for call in calls:
            found = getattr(pattern, call)(*([""] if "sub" in call else []), text)
            for _ in found if call == "finditer" else ():
                pass
"""
"""A script that applies patterns to texts that may make them slow."""


def run_limited(script: str, data: object, limit_s: int) -> subprocess.CompletedProcess[str]:
    """Run a script in its own process with a limit on CPU time, because it may never end."""
    return subprocess.run(
        [sys.executable, "-c", script],
        input=json.dumps(data),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s)),
    )


PATTERNS = list(package_patterns())


BY_HAND = {
    "mclabel.answers.reading.groups._MATRIX": "its body ends at the next begin or end",
    "mclabel.data.statements._BEGINS_CODE": "it is given MAX_FIRST characters of one line",
    "mclabel.judge.critic.verdicts._CODE": "its body ends at the next three backticks",
    "mclabel.answers.reading.normalize._OVER": r"what stands before \over holds no \over",
}
"""Linear patterns with a look-ahead for a whole word, and the reason why each is linear. The proof
does not cover look-aheads, so the test attacks these patterns."""


@pytest.mark.parametrize("module", dict.fromkeys(pattern.module for pattern in PATTERNS))
def test_steps_grow_with_the_length_and_no_faster(module: str) -> None:
    doubted = []
    for pattern in (pattern for pattern in PATTERNS if pattern.module == module):
        search = bool(pattern.calls - {"match", "fullmatch"})
        if Analysis(pattern.pattern, search=search).stumbling_word() is not None:
            assert pattern.name in BY_HAND
            doubted.append((pattern.pattern.pattern, pattern.pattern.flags, sorted(pattern.calls)))
    attack = run_limited(ATTACK, doubted, 60) if doubted else None
    assert attack is None or attack.returncode == 0, (doubted, attack.stderr)


@pytest.mark.parametrize(
    ("pattern", "search", "is_linear"),
    [
        (r"(?:\s|[a-z]+)+", False, False),
        (r"(a|a)*b", False, False),
        (r"(a*)*b", False, False),
        (r"a*b?a*c", False, False),
        (r"a*+a*+b", False, True),
        (r"(a|b)*c", False, True),
        (r"\s+$", True, False),
        (r"(?<!\s)\s++$", True, True),
        (r"\d+x", True, False),
        (r"\d+", True, True),
        (r"\([^()]*,[^()]*\)", True, False),
        (r"\([^(),]*+,[^()]*+\)", True, True),
        (r"[a-z]+ [a-z]+!", False, True),
    ],
)
def test_the_proof_tells_slow_patterns(pattern: str, search: bool, is_linear: bool) -> None:
    word = Analysis(re.compile(pattern), search=search).stumbling_word()
    assert (word is None) is is_linear


def test_slow_patterns_do_not_come_back() -> None:
    assert run_limited(ATTACK, [(r"\s+$", 0, ["search"])], 2).returncode < 0


def test_english_beside_a_gold_does_not_hang() -> None:
    script = "import json, sys; from mclabel.answers import grade\n"
    script += "for pair in json.load(sys.stdin): print(grade(*pair).verdict.value)"
    result = run_limited(script, HANGING, 20)
    assert result.returncode == 0
    assert "right" not in result.stdout.split()
