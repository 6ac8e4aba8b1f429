"""Foreign inputs and sets of ids are read in little memory, whatever size they decompress to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mclabel.core.errors import DataError, ShardError
from mclabel.core.plain_files import MAX_ROW
from mclabel.data.readers import rows
from mclabel.data.readers.rows import MAX_TEXT, TOO_LARGE, scan_rows
from mclabel.run.parquet import describe_oversized_table, measure_row_sizes, read_row_batches
from mclabel.run.shards import plan
from mclabel.run.shards.digest import encode_parquet_with_digest
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.plan import PackedNames
from mclabel.run.shards.schema import SCHEMA_VERSION
from mclabel.run.shards.store import Store
from tests.support.commands import run_verb
from tests.support.shown import plain_run

LONG = "a" * 1_000_000
GOOD = {"problem": "one", "answer": "1"}
MB = 1 << 20

CHILD = """
import resource, sys
import pyarrow.parquet
{imports}

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

before = peak()
{work}
print("MB", peak() - before)
"""


def peak_mb(imports: str, work: str, *arguments: str) -> int:
    """Return the memory in MB that some code takes in its own process, without its imports."""
    code = CHILD.format(imports=imports, work=work)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.rsplit("MB", 1)[1])


def scan_mb(path: Path) -> int:
    """Return the peak memory in MB of reading all rows."""
    return peak_mb(
        "from mclabel.data.readers.rows import scan_rows\n"
        "from mclabel.core.errors import DataError",
        "try:\n    print(sum(1 for _ in scan_rows(sys.argv[1])))\nexcept DataError as error:\n"
        "    print(error)",
        str(path),
    )


def write_runs(path: Path, count: int = 2000) -> None:
    """Write 2 GB of one letter, with 1 MB per row and many row groups, in about 100 KB."""
    schema = pa.schema([("problem", pa.string()), ("answer", pa.string())])
    with pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=False) as writer:
        part = pa.table({"problem": [LONG] * 50, "answer": ["1"] * 50}, schema=schema)
        for _ in range(count // 50):
            writer.write_table(part)


def write_named(path: Path, count: int = 2000) -> None:
    """Write the same rows as references to one long text, in about 1 KB."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([LONG]))
    pq.write_table(pa.table({"problem": texts, "answer": ["1"] * count}), path, compression="zstd")


def write_list(path: Path, count: int = 400) -> None:
    """Write a row whose list refers to the long text many times, between two good rows."""
    steps = [["x"], [LONG] * count, ["y"]]
    table = pa.table({"problem": ["one", "two", "three"], "answer": ["1"] * 3, "steps": steps})
    pq.write_table(table, path, compression="zstd")


@pytest.mark.slow
def test_a_file_that_unfolds_to_gigabytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.parquet"
    write_runs(path)
    assert path.stat().st_size < 200_000
    with pytest.raises(
        DataError, match=r"bytes decompress to 2,000,\d+,\d+ bytes.*, which no ordinary data does"
    ):
        next(iter(scan_rows(str(path))))
    assert scan_mb(path) < 200


@pytest.mark.slow
def test_texts_that_rows_share_are_not_multiplied(tmp_path: Path) -> None:
    path = tmp_path / "named.parquet"
    write_named(path)
    rows = [row for _, row in scan_rows(str(path))]
    assert len(rows) == 2000 and rows[0] == {"problem": LONG, "answer": "1"}
    del rows
    assert scan_mb(path) < 400


@pytest.mark.slow
def test_a_row_too_large_is_left_out_and_the_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "list.parquet"
    write_list(path)
    first, second, third = (row for _, row in scan_rows(str(path)))
    assert (first["steps"], second, third["steps"]) == (["x"], TOO_LARGE, ["y"])
    assert scan_mb(path) < 300


@pytest.mark.parametrize("group", [7, 1000])
def test_rows_read_in_pieces_are_those_of_the_table(tmp_path: Path, group: int) -> None:
    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = [
        {
            "id": i,
            "text": None if i % 7 == 3 else "é" * int(rng.integers(0, 30)),
            "steps": None if i % 5 == 4 else ["same", "x" * i][: i % 3],
            "meta": {"a": i / 2, "b": [{"c": str(i % 4)}] * (i % 3)},
            "ids": list(range(i % 9)),
            "flag": bool(i % 2),
            "raw": bytes([i % 256]) * (i % 11),
        }
        for i in range(300)
    ]
    maps = [[("k", i), ("l", None)] if i % 4 else [] for i in range(300)]
    named = pa.array(maps, type=pa.map_(pa.string(), pa.int64()))
    table = pa.Table.from_pylist(rows).append_column("named", named)
    path = tmp_path / "rows.parquet"
    pq.write_table(table, path, row_group_size=group)
    read = [row for batch in read_row_batches(path, path.stat().st_size) for row in batch or []]
    assert read == table.to_pylist()
    texts = pa.array(["ab", None, "abcd"]).dictionary_encode()
    sizes = measure_row_sizes(pa.record_batch({"text": texts, "of": pa.array([["xyz"], [], None])}))
    assert (sizes - sizes[1]).tolist() == [2 + 3 + 56, 0, 4]


def test_a_line_too_long_is_left_out_without_being_held(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with path.open("wb") as file:
        file.write(json.dumps(GOOD).encode() + b"\n")
        file.write(b'{"problem": "')
        for _ in range(300):
            file.write(b"x" * MB)
        file.write(b'"}\n\0\n\n' + json.dumps(GOOD).encode())
    numbered_rows = list(scan_rows(str(path)))
    assert [number for number, _ in numbered_rows] == [1, 2, 3, 5]
    assert numbered_rows[0][1] == numbered_rows[3][1] == GOOD
    assert numbered_rows[1][1] is TOO_LARGE and numbered_rows[2][1].reason == "not_json"
    assert scan_mb(path) < 150


@pytest.mark.parametrize("quoted", [False, True])
def test_a_csv_row_too_long_is_left_out(tmp_path: Path, quoted: bool) -> None:
    path = tmp_path / "rows.csv"
    with path.open("w") as file:
        file.write("problem,answer\none,1\n")
        file.write('"' if quoted else "")
        for _ in range(100):
            file.write("x" * MB + ("\n" if quoted else ""))
        file.write('",1\ntwo,2\n' if quoted else ",1\ntwo,2\n")
    rows = [row for _, row in scan_rows(str(path))]
    assert rows[0] == {"problem": "one", "answer": "1"}
    assert rows[1] is TOO_LARGE
    assert rows[-1] == {"problem": "two", "answer": "2"}
    assert scan_mb(path) < 250


def test_a_csv_file_of_one_endless_line_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("x" * (MAX_ROW + 1))
    with pytest.raises(DataError, match="its first line, which must name the columns"):
        list(scan_rows(str(path)))


def test_a_json_file_too_large_for_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    with path.open("wb") as file:
        file.truncate(MAX_TEXT + 1)
    with pytest.raises(DataError, match=r"jq -c '\.\[\]' rows\.json > rows\.jsonl"):
        scan_rows(str(path))


def test_a_shard_that_unfolds_to_gigabytes_is_refused(tmp_path: Path) -> None:
    stamp = {"kind": "labels", "schema_version": SCHEMA_VERSION, "rollouts": None}
    long = pa.DictionaryArray.from_arrays(pa.array([0] * 2000, pa.int32()), pa.array([LONG]))
    table = pa.table({"problem": long}).replace_schema_metadata({"mclabel": json.dumps(stamp)})
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "b.parquet").write_bytes(encode_parquet_with_digest(table))
    with pytest.raises(ShardError, match="which no ordinary data does"):
        next(read_labels(Store(str(tmp_path))))


def test_an_honest_table_is_read_however_much_its_rows_share() -> None:
    """The table holds problems with 16 solutions each, as a merge writes them."""
    rng = np.random.default_rng(0)
    texts = ["".join(map(chr, rng.integers(97, 123, 20_000))) for _ in range(40)]
    table = pa.table({"problem": [text for text in texts for _ in range(16)]})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    content = sink.getvalue()
    assert describe_oversized_table(content, pq.ParquetFile(content).metadata) is None


OPTIONS: dict[str, Callable[[str, str, str], list[str]]] = {
    "annotate --guidelines": lambda run, file, out: [
        *("annotate", run, "-o", out, "--guidelines", file)
    ],
    "annotate --gold": lambda run, file, out: ["annotate", run, "-o", out, "--gold", file],
    "annotate --select": lambda run, file, out: ["annotate", run, "-o", out, "--select", file],
    "import, rows": lambda run, file, out: ["import", file, "--from", "prm800k", "-o", out],
    "regrade --golds": lambda run, file, out: ["regrade", run, "-o", out, "--golds", file],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return plain_run(tmp_path_factory.mktemp("run") / "run")


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("kind", ["no UTF-8", "too large", "device", "pipe", "missing"])
def test_a_file_that_cannot_be_read_is_one_line(
    option: str, kind: str, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "MAX_TEXT", 1000)
    file = tmp_path / ("rows.json" if "rows" in option or "gold" in option else "text.txt")
    match kind:
        case "no UTF-8":
            file.write_bytes(b"\xff\xfe")
        case "too large":
            file.write_text("x" * 1001)
        case "device":
            file.symlink_to("/dev/zero")
        case "pipe":
            os.mkfifo(file)
    result = run_verb(OPTIONS[option](run, str(file), str(tmp_path / "out")), code=2)
    assert file.name in result.output and result.output.count("mclabel: ") == 1
    assert "Traceback" not in result.output and len(result.output) < 1000
    assert not (tmp_path / "out").exists()


NAMES = st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1))


@given(NAMES, NAMES)
def test_it_holds_what_it_was_given_once_and_in_order(names: list[str], others: list[str]) -> None:
    packed = PackedNames(names)
    assert list(packed) == sorted(set(names)) and len(packed) == len(set(names))
    for name in [*names, *others, "", "a" * 100]:
        assert (name in packed) == (name in set(names))
    assert packed & set(others) == set(names) & set(others)
    assert None not in packed


def test_parts_of_different_widths_are_one_set() -> None:
    names = [f"{i:x}" * (1 + i // plan.PACK_SIZE) for i in range(2 * plan.PACK_SIZE + 5)]
    packed = PackedNames(iter(names))
    assert set(packed) == set(names) and all(
        name in packed for name in names[:: plan.PACK_SIZE // 7]
    )
