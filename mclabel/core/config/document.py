"""Reads YAML documents with limits on size and depth, and without repeated keys.

PyYAML silently uses the last of two equal keys, and exceeds Python's recursion limit on deep
nesting. It lets a few lines of aliases expand to billions of values. It also reads scalars as YAML
1.1 does (`1:30:00` is 5400, `017` is 15, `no` is false). This module follows YAML 1.2's core
schema.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

MAX_BYTES = 1 << 20
"""Maximum size of a document in bytes."""
MAX_DEPTH = 32
"""Maximum depth of nested mappings and lists."""
MAX_VALUES = 100_000
"""Maximum number of values in a document after all aliases are expanded."""


def read_document(path: Path) -> Any:
    """Read a YAML file.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is too large, is not UTF-8, or is not usable YAML. The message gives
            the line and the reason.
    """
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES:,} bytes")
    return parse_document(content.decode("utf-8-sig"))


def parse_document(text: str) -> Any:
    """Parse a YAML text.

    Raises:
        ValueError: the text is not usable YAML. The message gives the line and the reason.
    """
    try:
        return yaml.load(text, _BoundedLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ValueError(f"{position}{error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


class _BoundedLoader(yaml.SafeLoader):
    """YAML loader that rejects repeated keys, deep nesting and too many values."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0
        """Number of nodes that are being composed, each inside the previous one."""
        self._measured: dict[int, tuple[int, int]] = {}
        """For each node, by its `id`, a pair: its number of values and its depth, with aliases
        expanded."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        start = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=_TOO_DEEP, problem_mark=start)
        is_alias = self.check_event(yaml.AliasEvent)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if node is None:
            return node
        if not is_alias:
            _check_mapping_keys(node)
            self._measure_node(node)
        elif id(node) not in self._measured:
            raise yaml.MarkedYAMLError(problem="an alias that contains itself", problem_mark=start)
        num_values, depth = self._measured[id(node)]
        if depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=_TOO_DEEP, problem_mark=start)
        if num_values > MAX_VALUES:
            raise yaml.MarkedYAMLError(
                problem=f"more than {MAX_VALUES:,} values with all aliases expanded",
                problem_mark=start,
            )
        return node

    def _measure_node(self, node: yaml.Node) -> None:
        if isinstance(node, yaml.MappingNode):
            children = [child for pair in node.value for child in pair]
        else:
            children = node.value if isinstance(node, yaml.SequenceNode) else []
        child_sizes = [self._measured[id(child)] for child in children]
        self._measured[id(node)] = (
            1 + sum(num_values for num_values, _ in child_sizes),
            1 + max((depth for _, depth in child_sizes), default=0),
        )

    def construct_integer(self, node: yaml.ScalarNode) -> int:
        """Read a decimal, octal (`0o17`) or hexadecimal number."""
        text = node.value
        try:
            return int(text, 0 if text[:2] in ("0o", "0x") else 10)
        except ValueError as error:
            problem = f"{text[:20]!r} is not a whole number of at most 4,300 digits"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from error


_SCALARS = (
    ("null", "~|null|Null|NULL|", "~nN"),
    ("bool", "true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("merge", "<<", "<"),
)
"""For each kind of plain scalar, its tag, pattern and possible first characters, in the order in
which they are tried. Merge keys (`<<`) are an addition to YAML 1.2's core schema."""
_BoundedLoader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in _SCALARS:
    _BoundedLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}",
        re.compile(f"(?:{_pattern})$"),
        [*_first, *([""] if _tag == "null" else [])],
    )
_BoundedLoader.add_constructor("tag:yaml.org,2002:int", _BoundedLoader.construct_integer)

_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"


def _check_mapping_keys(node: yaml.Node) -> None:
    if not isinstance(node, yaml.MappingNode):
        return
    lines: dict[str, int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        line = key.start_mark.line + 1
        if key.value in lines:
            raise yaml.MarkedYAMLError(
                problem=f"the key {key.value!r} is repeated; it is first set in line "
                f"{lines[key.value]}. Keep one of the two",
                problem_mark=key.start_mark,
            )
        lines[key.value] = line
