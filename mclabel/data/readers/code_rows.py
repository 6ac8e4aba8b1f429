"""Programming problems with tests, read from rows of public data sets.

A data set is recognised by its columns. Each row gives a problem text and a gold, which is the
tests in the form that `checker=code` reads (docs/code.md). A row whose tests need more than Python
is rejected with the reason.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickle
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mclabel.checkers.code.golds import BadGold, convert_cases_to_pairs
from mclabel.core.errors import RejectReason

MAX_TESTS_BYTES = 1 << 24
"""Maximum size of a row's unpacked tests, in bytes."""
_ANSWERED = ("answer", "final_answer", "reward_model")
"""Columns of rows whose gold is an answer, not tests."""


@dataclass(frozen=True)
class CodeRow:
    """A problem with tests."""

    text: str
    """Text of the problem."""
    gold: Mapping[str, Any] | str
    """Tests in the form that `checker=code` reads."""
    consumed_columns: frozenset[str]
    """Columns that are not kept as metadata, because they hold the text, tests or solutions."""


def read_code_row(row: Mapping[str, Any]) -> CodeRow | RejectReason | None:
    """Read the problem and the tests of a row; return None if no public data set has its columns.

    Args:
        row: row of a data set.
    """
    row = {str(name): value for name, value in row.items() if value is not None}
    if any(name in row for name in _ANSWERED):
        return None
    layout = next(
        (
            layout
            for layout in _LAYOUTS
            if layout.identifying_columns <= row.keys() and layout.accepts_row(row)
        ),
        None,
    )
    if layout is None:
        return None
    try:
        gold = layout.convert_to_gold(row)
    except (BadGold, ValueError, TypeError, KeyError, AttributeError) as error:
        return RejectReason(
            "no_gold", f"the tests of a row of {layout.name} cannot be read: {error}"
        )
    if not gold:
        return RejectReason("no_gold", f"the row of {layout.name} has no tests. Remove it")
    text = next((row[name] for name in layout.text_columns if isinstance(row.get(name), str)), "")
    if not text.strip():
        return RejectReason("no_problem", f"no text in {' or '.join(layout.text_columns)}")
    starter = row.get("starter_code")
    if isinstance(starter, str) and starter.strip() and starter not in text:
        text = f"{text}\n\n{starter}"
    return CodeRow(text, gold, _TESTS)


_TESTS = frozenset({
    "test", "test_list", "challenge_test_list", "test_setup_code", "test_imports", "test_cases",
    "entry_point", "code", "canonical_solution", "solution", "solutions", "completion",
    "input_output", "public_test_cases", "private_test_cases", "public_tests", "private_tests",
    "generated_tests", "official_tests", "examples", "verification_info", "code_prompt",
    "complete_prompt", "gold_standard_solution", "inferences", "prompt", "text", "question",
})  # fmt: skip


@dataclass(frozen=True)
class _RowLayout:
    """Columns of a public data set, and the conversion of one of its rows to a gold."""

    name: str
    """Name of the data set, for messages."""
    identifying_columns: frozenset[str]
    """Columns by which the data set is recognised."""
    text_columns: tuple[str, ...]
    """Columns that may hold the problem's text; the first column with a text is used."""
    convert_to_gold: Callable[[Mapping[str, Any]], Mapping[str, Any] | str]
    """Function that converts a row to a gold for `checker=code`."""
    accepts_row: Callable[[Mapping[str, Any]], bool] = lambda row: True
    """Function that returns whether a row with these columns really belongs to the data set."""


def _rename_columns(row: Mapping[str, Any], **names: str) -> dict[str, Any]:
    """Return those of the named columns that the row has, under other names.

    Args:
        row: row of a data set.
        names: name of the column by its key in the result, which is a key of a gold.
    """
    return {key: row[name] for key, name in names.items() if name in row}


def _convert_row_with_check_function(
    row: Mapping[str, Any], prompt: str = "prompt"
) -> dict[str, Any]:
    return _rename_columns(
        row,
        test="test",
        entry_point="entry_point",
        prompt=prompt,
        canonical_solution="canonical_solution",
    )


def _convert_leetcode_row(row: Mapping[str, Any]) -> dict[str, Any]:
    gold = _rename_columns(row, test="test", entry_point="entry_point", prompt="prompt")
    solution = row.get("completion")
    return gold | ({"solution": f"{row['prompt']}\n{solution}"} if solution else {})


def _convert_mbpp_row(row: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(row.get("test"), str):
        return _rename_columns(row, test="test", code="code")
    names = ("test_list", "test_setup_code", "test_imports", "code")
    return _rename_columns(row, **dict(zip(names, names, strict=True)))


def _convert_live_code_bench_row(row: Mapping[str, Any]) -> Mapping[str, Any]:
    cases = [
        *_parse_test_cases(row["public_test_cases"]),
        *_parse_test_cases(row.get("private_test_cases", "[]")),
    ]
    name = (_parse_json_if_text(row.get("metadata") or "{}") or {}).get("func_name")
    return convert_cases_to_pairs(
        [{**case, **({"fn_name": name} if name else {})} for case in cases]
    )


def _convert_code_contests_row(row: Mapping[str, Any]) -> dict[str, Any]:
    kinds = [row.get(f"{kind}_tests") or {} for kind in ("public", "private", "generated")]
    return {
        "inputs": [text for kind in kinds for text in kind.get("input", ())],
        "outputs": [text for kind in kinds for text in kind.get("output", ())],
    }


def _convert_codeforces_row(row: Mapping[str, Any]) -> Mapping[str, Any]:
    if row.get("input_mode", "stdio") != "stdio":
        raise BadGold(f"input_mode is {row['input_mode']!r}: only standard input is supported")
    if row.get("generated_checker"):
        raise BadGold("outputs need the program in generated_checker, which mclabel cannot run")
    return convert_cases_to_pairs(list(row["official_tests"]))


def _convert_synthetic_row(row: Mapping[str, Any]) -> Mapping[str, Any]:
    info = _parse_json_if_text(row["verification_info"])
    if info.get("language", "python") != "python":
        raise BadGold(f"the language is {info['language']!r}: only Python can be run")
    return convert_cases_to_pairs(list(info["test_cases"]))


def _parse_json_if_text(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _parse_test_cases(text: Any) -> list[Any]:
    """Parse test cases from JSON, or from LiveCodeBench's pickle, compressed and in base64."""
    if not isinstance(text, str) or text.lstrip()[:1] in ("[", ""):
        return list(_parse_json_if_text(text or "[]"))
    try:
        packed = base64.b64decode(text, validate=True)
        unpacker = zlib.decompressobj()
        content = unpacker.decompress(packed, MAX_TESTS_BYTES)
        if unpacker.unconsumed_tail:
            raise BadGold(f"private_test_cases unpack to more than {MAX_TESTS_BYTES:,} bytes")
        return list(json.loads(_TextUnpickler(io.BytesIO(content)).load()))
    except (binascii.Error, zlib.error, pickle.UnpicklingError, EOFError) as error:
        raise BadGold(f"private_test_cases cannot be unpacked ({error})") from error


class _TextUnpickler(pickle.Unpickler):
    """Unpickler of plain values, which runs no code because it rejects classes and functions."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        """Reject every class and function."""
        raise pickle.UnpicklingError(
            f"only plain values are allowed, but the pickle names {module_name}.{global_name}"
        )


_CHECKED = frozenset({"test", "entry_point"})
_LAYOUTS = (
    _RowLayout(
        "SYNTHETIC-1",
        frozenset({"verification_info"}),
        ("prompt", "problem"),
        _convert_synthetic_row,
    ),
    _RowLayout(
        "LiveCodeBench",
        frozenset({"public_test_cases"}),
        ("question_content",),
        _convert_live_code_bench_row,
    ),
    _RowLayout(
        "CodeContests",
        frozenset({"public_tests", "private_tests"}),
        ("description",),
        _convert_code_contests_row,
    ),
    _RowLayout(
        "codeforces",
        frozenset({"official_tests"}),
        ("prompt", "description"),
        _convert_codeforces_row,
    ),
    _RowLayout(
        "BigCodeBench",
        _CHECKED | {"code_prompt"},
        ("instruct_prompt", "complete_prompt"),
        lambda row: _convert_row_with_check_function(row, "code_prompt"),
    ),
    _RowLayout(
        "LeetCodeDataset",
        _CHECKED | {"problem_description"},
        ("query", "problem_description"),
        _convert_leetcode_row,
    ),
    _RowLayout("HumanEval", _CHECKED | {"prompt"}, ("prompt",), _convert_row_with_check_function),
    _RowLayout(
        "MBPP",
        frozenset({"test_list"}),
        ("text", "problem", "prompt", "question"),
        _convert_mbpp_row,
    ),
    _RowLayout(
        "AceCode",
        frozenset({"test_cases"}),
        ("question",),
        lambda row: {"test_list": list(row["test_cases"])},
    ),
    _RowLayout(
        "KodCode",
        frozenset({"test", "solution"}),
        ("question",),
        lambda row: _rename_columns(row, tests="test", solution="solution"),
        lambda row: isinstance(row["test"], str) and "assert" in row["test"],
    ),
    _RowLayout(
        "APPS",
        frozenset({"input_output"}),
        ("question", "problem"),
        lambda row: row["input_output"],
    ),
)
