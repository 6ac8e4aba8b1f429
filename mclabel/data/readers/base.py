"""The protocol of problem readers, and the choice of the reader for a source.

The setting `problems.source` may be the name of a reader (`arith`), or begin with the name and a
colon (`hf:openai/gsm8k`). It may also begin with a Python name (`my_package.mine:read`,
`my_package.mine:read:PLACE`), or be a file whose suffix is the name of a reader. Any other source
is a file. If the setting `problems.kind` is given, it names the reader instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Protocol, cast

from pydantic import Field, ValidationError
from pydantic_core import PydanticCustomError

from mclabel.core.boundary import Boundary, Guard
from mclabel.core.components import find_component, list_component_names
from mclabel.core.errors import ConfigError
from mclabel.core.settings import MAX_TOTAL, Chosen, ComponentSettings

_PYTHON_NAME = re.compile(
    r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?::|\Z)"
)
"""Pattern of `module:Class` or `module:function`, alone or before a colon and the text that the
reader gets, such as a path."""


class ReaderSettings(ComponentSettings):
    """Settings that all readers of problems have."""

    component_kind: ClassVar[str] = "readers"
    reads_files: ClassVar[bool] = False
    """True if `source` is a path or a URL, which must mean the same on every machine."""

    source: str = Field(coerce_numbers_to_str=True)
    """`arith`, `pyarith` or `words` (generated), a file, `hf:NAME` (a Hugging Face dataset) or
    `module:function` (a reader of your own). A file is .jsonl, .json, .parquet or .csv, or its
    URL."""
    limit: int | None = Field(None, ge=1, le=MAX_TOTAL)
    """Maximum number of problems; null reads all. Generated problems need a number."""
    chance: float | None = Field(None, ge=0, lt=1)
    """Probability that a guess is right, in [0, 1). With null, it follows from the gold answer: 1/2
    for yes or no, 1 / number of options for a letter, else 0."""

    @property
    def place(self) -> str:
        """The part of `source` after the name of its reader and a colon.

        It is empty if the source is only that name. A source without the name is returned whole.
        """
        return "" if self.source == self.kind else self.source.removeprefix(f"{self.kind}:")


class RowSettings(ReaderSettings):
    """Settings of a reader whose rows may have columns with any names."""

    problem_column: str | None = None
    """Column of the problem; null takes the first of `problem`, `question`, `prompt` and `text`."""
    answer_column: str | None = None
    """Column of the gold answer; null takes the first of `answer`, `final_answer`, `solution` and
    `reward_model`."""


class Reader(Protocol):
    """Reader of the rows of a source, which returns the same rows each time.

    Its class has an attribute `Settings`, derived from `ReaderSettings` or `RowSettings`, and is
    constructed with such settings. A plain function can also be a reader (`FunctionReader`).
    """

    def rows(self) -> Iterable[tuple[int, Any]]:
        """Return every row with its number, from 1.

        A row is a mapping with a problem and its gold, a `Problem`, or a `RejectReason` if it
        cannot be read.

        Raises:
            DataError: the source is missing or unreadable.
        """


@dataclass(frozen=True)
class ChosenReader(Chosen):
    """Annotation of a field whose type of settings depends on the reader that `source` needs."""

    component_kind: str = "readers"
    default: str = "arith"

    def component_name_in(self, content: Mapping[str, Any]) -> Any:
        """Return the reader's name from `kind`, else from `source`."""
        if "kind" in content:
            return content["kind"]
        source = content.get("source", self.default)
        return find_reader_name(source) if isinstance(source, str) else self.default


def make_reader_settings(source: str, **keys: Any) -> ReaderSettings:
    """Return the settings of the reader of a source.

    Args:
        source: source of problems, as in `problems.source`.
        keys: other settings of the reader.

    Raises:
        ConfigError: no reader reads the source, or a key is wrong.
    """
    try:
        settings = ChosenReader().settings({"source": source, **keys})
    except (PydanticCustomError, ValidationError) as error:
        raise ConfigError(f"{source}: {error}") from error
    assert isinstance(settings, ReaderSettings)
    return settings


def find_reader_name(source: str) -> str:
    """Return the name of the reader that a source needs.

    Raises:
        ConfigError: the source is neither a file nor the name of a reader.
    """
    names = list_component_names("readers")
    head, colon, _ = source.partition(":")
    suffix = PurePosixPath(source).suffix.removeprefix(".")
    if source in names:
        return source
    if colon and head in names:
        return head
    if (named := _PYTHON_NAME.match(source)) and not Path(source).exists():
        return named[1]
    if suffix in names:
        return suffix
    if source and "." not in source and "/" not in source and not Path(source).exists():
        find_component("readers", source)  # raises an error that suggests the nearest name
    return "file"


def make_reader(settings: ReaderSettings) -> Reader:
    """Make the reader that the settings choose.

    Raises:
        ComponentError: a third-party reader cannot be constructed.
    """
    around = Boundary("readers", settings.kind)
    reader: Reader = around.call("__init__", settings.component, settings, slow=True)
    return (
        reader
        if around.is_built_in
        else cast(Reader, Guard(reader, Reader, around, {"rows": _find_row_number_fault}))
    )


def _find_row_number_fault(row: tuple[int, Any], before: tuple[int, Any] | None) -> str | None:
    last = 0 if before is None else before[0]
    if row[0] > last:
        return None
    return f"gave row {row[0]} after row {last}: row numbers must increase from 1"
