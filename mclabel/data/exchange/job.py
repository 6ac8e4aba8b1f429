"""Jobs that export a run to other formats or to Parquet files, and import from other formats."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mclabel.answers import grade
from mclabel.core.errors import ConfigError, DataError, RejectReason
from mclabel.core.records import Outcome, Verdict
from mclabel.core.seeds import content_id
from mclabel.data.exchange.formats import (
    Format,
    LabeledTexts,
    convert_to_labeled_texts,
    convert_to_solution,
    find_format,
    read_row,
)
from mclabel.data.readers.rows import read_object_rows
from mclabel.data.readers.solutions import RowRejects
from mclabel.run.outputs import EXPORT, check_no_other_output, make_output_folder
from mclabel.run.run import RunOutput
from mclabel.run.shards.finished import write_completion_marker
from mclabel.run.shards.labels import (
    commit_block,
    iter_label_tables,
    iter_rollout_tables,
    read_labels,
)
from mclabel.run.shards.manifest import SemanticConfig, collect_package_versions
from mclabel.run.shards.rejects import FILE as REJECTS
from mclabel.run.shards.rejects import Reject, write_reject_lines, write_rejects
from mclabel.run.shards.schema import LABELS_SCHEMA, ROLLOUTS_SCHEMA
from mclabel.run.shards.store import Store

DATA, CARD = "data.jsonl", "README.md"
BLOCK_ROWS = 1024
"""Number of imported solutions per block of the run."""
MAX_REASON = 400
"""Maximum number of characters that are quoted from an error message of the Hugging Face Hub."""


@dataclass(frozen=True, kw_only=True)
class ExportReport:
    """Counts and paths that an export prints."""

    to: str
    """Name of the format."""
    losses: str
    """Clause that names the information that the format loses, such as "ids are lost"."""
    path: str
    """Path of the written file."""
    num_rows: int
    """Number of written rows."""
    num_left_out: int
    """Number of solutions that the format cannot represent. `rejects.jsonl` has the reasons."""
    num_cut: int
    """Number of solutions that were written only up to their first step without a label."""
    num_not_kept: int
    """Number of solutions that are not written because judges reached no consensus on them."""
    url: str | None
    """URL of the uploaded commit; None without an upload."""

    def lines(self) -> Iterator[str]:
        """Yield the lines to print on a terminal."""
        yield f"{self.num_rows} rows written to {self.path}"
        why = f" (reasons: {Path(self.path).parent / REJECTS})" if self.num_left_out else ""
        yield (
            f"limits of {self.to}: {self.losses}. In this export, {self.num_left_out} solutions "
            f"were left out{why} and {self.num_cut} were cut"
            + (f"; {self.num_not_kept} were not kept by a consensus" if self.num_not_kept else "")
        )
        if self.url is not None:
            yield f"uploaded to {self.url}"


@dataclass(frozen=True, kw_only=True)
class ImportReport:
    """Numbers of rows read, solutions and problems imported, and rows rejected by an import."""

    num_rows: int
    num_solutions: int
    num_problems: int
    num_rejected: int
    """Number of rows and solutions that were left out. `rejects.jsonl` has the reasons."""


def export_run(
    run: str, to: str, out: str, *, push_to_hub: str | None = None, strict: bool = False
) -> ExportReport:
    """Write `data.jsonl`, a data set card and the reasons for rejected solutions to a folder.

    Args:
        run: folder or URL of a run with labels.
        to: name of the format, or `module:Class`.
        out: output folder, created if it is missing. An earlier export in the folder is replaced.
        push_to_hub: data set of the Hugging Face Hub to upload the folder to; None for no upload.
        strict: True to raise an error for a solution that the format cannot represent. Otherwise
            the solution is left out.

    Raises:
        DataError: the format cannot represent any solution. If `strict`, one solution that it
            cannot represent is enough.
        ConfigError: there is no such format, or the upload was rejected.
    """
    exchange_format = find_format(to)
    check_no_other_output(out, EXPORT, "-o ")
    rows = read_labels(Store(run))
    folder = make_output_folder(out, "-o ")
    num_rows = num_cut = num_not_kept = 0
    left_out: list[Reject] = []
    partial = folder / f"{DATA}.partial"
    try:
        with partial.open("w", encoding="utf-8") as file:
            for row in rows:
                if not row.is_kept:
                    num_not_kept += 1
                    continue
                texts = convert_to_labeled_texts(row)
                exported = _write_exported_row(exchange_format, texts, to)
                if isinstance(exported, str):
                    if strict:
                        raise DataError(f"{run}: solution {row.solution.id}: {exported}")
                    left_out.append(
                        Reject(
                            problem_id=row.problem.id,
                            reason="not_held",
                            detail=f"solution {row.solution.id}: {exported}",
                        )
                    )
                    continue
                num_cut += exchange_format.stops_at_unlabeled_step and None in texts.ratings
                num_rows += 1
                file.write(_format_json_line(exported, to))
        num_left_out = len(left_out)
        if not num_rows:
            first_reject = f"; the first: {left_out[0].detail}" if left_out else ""
            raise DataError(
                f"{run}: none of its {num_left_out} solutions can be written in the "
                f"format {to}{first_reject}. Choose another --to"
            )
        write_reject_lines(folder / REJECTS, left_out)
        partial.rename(folder / DATA)
    finally:
        partial.unlink(missing_ok=True)
    (folder / CARD).write_text(
        _make_card_text(run, to, exchange_format, num_rows, num_left_out, num_cut), encoding="utf-8"
    )
    return ExportReport(
        to=to,
        losses=exchange_format.lost_information,
        path=str(folder / DATA),
        num_rows=num_rows,
        num_left_out=num_left_out,
        num_cut=num_cut,
        num_not_kept=num_not_kept,
        url=None if push_to_hub is None else push_folder(folder, push_to_hub, [DATA, CARD]),
    )


def _write_exported_row(form: Format, texts: LabeledTexts, to: str) -> Mapping[str, Any] | str:
    """Return the row of a solution, or the reason why the format cannot represent it."""
    try:
        exported = form.write(texts)
    except DataError as error:
        return str(error)
    return f"the format {to} cannot represent its labels" if exported is None else exported


def _format_json_line(row: Mapping[str, Any], to: str) -> str:
    """Return a row as a line of JSON.

    Raises:
        ConfigError: the format returned a value that JSON cannot represent.
    """
    try:
        return json.dumps(dict(row), ensure_ascii=False) + "\n"
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"--to {to}: its method write returned a row that is not a JSON object ({error}). It "
            "must hold only texts, numbers, lists and mappings"
        ) from error


def import_file(path: str, source: str, out: str, *, strict: bool = False) -> ImportReport:
    """Import a file of another format as a run that scorers can be trained on.

    Args:
        path: JSON Lines, JSON or Parquet file.
        source: name of the file's format, or `module:Class`.
        out: folder of the run. Importing the same file again changes nothing.
        strict: True if a row that cannot be used is an error. Otherwise the row is left out, and
            the run's `rejects.jsonl` has the reason.

    Raises:
        DataError: no row can be used. If `strict`, one row that cannot be used is enough.
        ShardError: the folder has other content.
    """
    exchange_format = find_format(source)
    run = RunOutput.inspect(out)
    solutions: dict[str, list[LabeledTexts]] = defaultdict(list)
    left_out = RowRejects(path, strict=strict)
    num_rows = 0
    for number, row in read_object_rows(path):
        num_rows += 1
        row_solutions = (
            [row] if isinstance(row, RejectReason) else read_row(exchange_format, row, source)
        )
        for texts in row_solutions:
            if isinstance(texts, RejectReason):
                left_out.add(texts, number)
            else:
                solutions[texts.problem].append(texts)
    if not solutions:
        raise DataError(left_out.describe_lack_of_usable_rows())
    labeled = [
        convert_to_solution(texts, sample_index=index, outcome=_derive_outcome(texts))
        for problem_solutions in solutions.values()
        for index, texts in enumerate(problem_solutions)
    ]
    content = content_id(
        [row.solution.id for row in labeled],
        [[row.solution.text, [step.value for step in row.steps]] for row in labeled],
    )
    run.check_config(SemanticConfig.from_config({"imported": source, "content": content}))
    store = run.claim({"versions": collect_package_versions()})
    for start in range(0, len(labeled), BLOCK_ROWS):
        block = content_id(content, start)
        part = labeled[start : start + BLOCK_ROWS]
        commit_block(store, block, "import", part, None, run.shard_metadata())
    num_rejected = write_rejects(store, left_out.found)
    write_completion_marker(store, num_blocks=-(-len(labeled) // BLOCK_ROWS))
    return ImportReport(
        num_rows=num_rows,
        num_solutions=len(labeled),
        num_problems=len({row.problem.id for row in labeled}),
        num_rejected=num_rejected,
    )


def _derive_outcome(texts: LabeledTexts) -> Outcome:
    if texts.right is not None:
        return Outcome.RIGHT if texts.right else Outcome.WRONG
    if not texts.answer or texts.prediction is None:
        return Outcome.UNGRADED
    outcomes = {Verdict.RIGHT: Outcome.RIGHT, Verdict.WRONG: Outcome.WRONG}
    return outcomes.get(grade(texts.prediction, texts.answer).verdict, Outcome.UNGRADED)


def push_folder(folder: Path, name: str, files: Sequence[str]) -> str:
    """Upload files to a data set of the Hugging Face Hub, and return the URL of the commit.

    Args:
        folder: folder with the files.
        name: name of the data set, made if it does not exist.
        files: names of the files in the folder.

    Raises:
        ConfigError: the upload was rejected or failed.
    """
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        api.create_repo(name, repo_type="dataset", exist_ok=True)
        commit = api.upload_folder(
            folder_path=str(folder),
            repo_id=name,
            repo_type="dataset",
            allow_patterns=list(files),
        )
    except Exception as error:  # the Hub's HTTP library, and so its errors, differs by version
        reason = " ".join(str(error).split())[:MAX_REASON] or type(error).__name__
        raise ConfigError(
            f"--push-to-hub {name}: {reason}. The files are in {folder}. Check the name and the "
            "network, log in with `hf auth login`, and run the same command again, or run `hf "
            f"upload {name} {folder} --repo-type dataset`"
        ) from error
    return str(commit.commit_url)


def _make_card_text(
    run: str, to: str, form: Format, num_rows: int, num_left_out: int, num_cut: int
) -> str:
    sources = describe_label_sources(run)
    return f"""---
tags: [process-reward-model, mclabel]
configs:
- config_name: default
  data_files: {DATA}
---
{num_rows} solutions with a label for every step, in the format of {to}, made by mclabel.

How steps came to their labels: {sources}. A label from rollouts shows whether the labelling policy
still reaches the right answer from a step on; it is not a proof that the step is right.

Limits of this format: {form.lost_information}. {num_left_out} solutions were left out, and
{num_cut} were cut before their first step without a label.
"""


def describe_label_sources(run: str) -> str:
    """Return a text with the number of a run's steps for each source of labels."""
    counts = Counter(step.source for row in read_labels(Store(run)) for step in row.steps)
    return ", ".join(f"{source} ({count} steps)" for source, count in sorted(counts.items()))


FILE_BYTES = 1 << 27
"""Approximate maximum size of a file's table in memory, in bytes."""
_GROUP_ROWS = 10_000
"""Number of rows per row group of a Parquet file."""
_PARTIAL = ".partial"


@dataclass(frozen=True, kw_only=True)
class TablesReport:
    """Counts and paths of an export to Parquet files."""

    path: str
    num_labels: int
    num_rollouts: int
    files: tuple[str, ...]
    url: str | None

    def lines(self) -> Iterator[str]:
        """Yield the lines to print on a terminal."""
        yield (
            f"{self.num_labels:,} solutions and {self.num_rollouts:,} rollouts written to "
            f"{self.path} ({len(self.files)} files)"
        )
        if self.url is not None:
            yield f"uploaded to {self.url}"


def export_tables(
    run: str, out: str, *, push_to_hub: str | None = None, file_bytes: int = FILE_BYTES
) -> TablesReport:
    """Write `labels-NUMBER.parquet`, `rollouts-NUMBER.parquet` and a data set card to a folder.

    Shards are read one after another, so little memory is needed.

    Args:
        run: folder or URL of a run with labels.
        out: output folder, created if it is missing. An earlier export in the folder is replaced.
        push_to_hub: data set of the Hugging Face Hub to upload the folder to; None for no upload.
        file_bytes: approximate maximum size of a file's table in memory, in bytes.

    Raises:
        ShardError: the run is missing or a shard is damaged.
        ConfigError: the folder cannot be written, or the upload was rejected.
    """
    check_no_other_output(out, EXPORT, "-o ")
    store, folder = Store(run), Path(out)
    labels = _TableWriter(folder, "labels", LABELS_SCHEMA, file_bytes)
    rollouts = _TableWriter(folder, "rollouts", ROLLOUTS_SCHEMA, file_bytes)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        labels.write(table for _, table in iter_label_tables(store))
        rollouts.write(iter_rollout_tables(store))
        files = (*labels.finish(), *rollouts.finish())
        (folder / CARD).write_text(
            _make_tables_card_text(run, labels.num_rows, rollouts.num_rows), encoding="utf-8"
        )
    except OSError as error:
        raise ConfigError(
            f"-o {out}: cannot be written ({error.strerror}). Give another folder"
        ) from error
    return TablesReport(
        path=str(folder),
        num_labels=labels.num_rows,
        num_rollouts=rollouts.num_rows,
        files=files,
        url=None if push_to_hub is None else push_folder(folder, push_to_hub, [*files, CARD]),
    )


class _TableWriter:
    """Writer of the Parquet files of labels or rollouts.

    The files have temporary names until all of them are complete.
    """

    def __init__(self, folder: Path, kind: str, schema: pa.Schema, file_bytes: int) -> None:
        self._folder, self._kind, self._schema = folder, kind, schema
        self._file_bytes = file_bytes
        self._names: list[str] = []
        self.num_rows = 0

    def write(self, tables: Iterable[pa.Table]) -> None:
        pending: list[pa.Table] = []
        pending_bytes = 0
        for table in tables:
            pending.append(table.select(self._schema.names).replace_schema_metadata(None))
            pending_bytes += table.nbytes
            if pending_bytes >= self._file_bytes:
                self._write_parquet_file(pending)
                pending, pending_bytes = [], 0
        if pending:
            self._write_parquet_file(pending)

    def _write_parquet_file(self, tables: list[pa.Table]) -> None:
        table = pa.concat_tables(tables).cast(self._schema)
        if table.num_rows:
            self._names.append(f"{self._kind}-{len(self._names):05d}.parquet")
            path = self._folder / (self._names[-1] + _PARTIAL)
            pq.write_table(table, path, compression="zstd", row_group_size=_GROUP_ROWS)
            self.num_rows += table.num_rows

    def finish(self) -> tuple[str, ...]:
        """Give the files their final names, remove an earlier export, and return the names."""
        for path in self._folder.glob(f"{self._kind}-*.parquet"):
            path.unlink()
        for name in self._names:
            (self._folder / (name + _PARTIAL)).rename(self._folder / name)
        return tuple(self._names)


def _make_tables_card_text(run: str, num_labels: int, num_rollouts: int) -> str:
    rollouts = "- config_name: rollouts\n  data_files: rollouts-*.parquet\n" if num_rollouts else ""
    sources = describe_label_sources(run)
    return f"""---
tags: [process-reward-model, mclabel]
configs:
- config_name: labels
  data_files: labels-*.parquet
  default: true
{rollouts}---
{num_labels} solutions with a label for every step, and the {num_rollouts} rollouts behind the
labels, made by mclabel. The page docs/formats.md of mclabel explains every column.

How steps came to their labels: {sources}. A label from rollouts shows whether the labelling
policy still reaches the right answer from a step on; it is not a proof that the step is right.
"""
