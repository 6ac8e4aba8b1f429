"""The verb `check`: the answer checker on the command line."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from mclabel.cli.output import (
    EXIT_BAD_LINES,
    add_json_option,
    errors,
    record_json_result,
    refuse_json_option,
)
from mclabel.core.errors import DataError


@click.command()
@click.option("--gold", help="The reference answer.")
@click.option("--answer", help="The answer to grade.")
@click.option(
    "--completion",
    help=("File with a completion whose answer is extracted and graded; - reads standard input."),
)
@click.option(
    "--file",
    "pairs_path",
    help=("JSON Lines file to grade; each line has gold, and answer or completion."),
)
@click.option(
    "-o", "--out", help=("With --file: JSON Lines file to write; the default is standard output.")
)
@add_json_option
def check(
    gold: str | None,
    answer: str | None,
    completion: str | None,
    pairs_path: str | None,
    out: str | None,
) -> None:
    """Grade answers as right, wrong or unknown, and print the reasons.

    The output also names the stage of the checker that decided. Give either --gold with --answer or
    --completion, or give --file. Lines that cannot be read are reported and left out; the exit code
    is then 1.
    """
    if pairs_path is not None:
        if gold is not None or answer is not None or completion is not None:
            raise click.UsageError(
                "--file cannot be combined with --gold, --answer or --completion"
            )
        if out is None:
            refuse_json_option("-o OUT")
        _check_file(pairs_path, out)
        return
    if gold is None or (answer is None) == (completion is None) or out is not None:
        raise click.UsageError("give --gold with either --answer or --completion, or give --file")
    from mclabel.answers import extract_answer, grade, grade_completion
    from mclabel.answers.golds import choose_best_grade
    from mclabel.evaluate.check import parse_golds_or_fault

    golds = parse_golds_or_fault(gold)
    if isinstance(golds, str):
        raise DataError(f"--gold {gold!r}: {golds}. Give the right answer")
    if completion is not None:
        text = _read_text_file(completion)
        answer = extract_answer(text)
        best = choose_best_grade([grade_completion(text, gold_text)[1] for gold_text in golds])
    else:
        assert answer is not None
        best = choose_best_grade([grade(answer, gold_text) for gold_text in golds])
    graded = {"answer": answer, **asdict(best)}
    if not record_json_result(graded):
        click.echo(json.dumps(graded, ensure_ascii=False))


def _check_file(pairs_path: str, out: str | None) -> None:
    from mclabel.evaluate.check import check_file

    print_bad_line = partial(
        errors.print, style="red", markup=False, highlight=False, soft_wrap=True
    )
    report = check_file(pairs_path, out, on_bad_line=print_bad_line)
    rate = report.num_graded_pairs / report.seconds if report.seconds else 0.0
    verdicts = {verdict: report.verdicts[verdict] for verdict in ("right", "wrong", "unknown")}
    record_json_result(
        {"out": out, "num_pairs": report.num_graded_pairs, **asdict(report), "verdicts": verdicts}
    )
    counts = ", ".join(f"{count:,} {verdict}" for verdict, count in verdicts.items())
    click.echo(
        f"{report.num_graded_pairs:,} pairs: {counts}; {rate:,.0f} pairs/s; "
        f"{report.num_bad_lines:,} bad lines",
        err=out is None,
    )
    if report.num_bad_lines:
        sys.exit(EXIT_BAD_LINES)


def _read_text_file(path: str) -> str:
    from mclabel.core.plain_files import MAX_ROW
    from mclabel.data.readers.rows import TOO_LARGE

    try:
        with nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as file:
            raw = file.read(MAX_ROW + 1)
        if len(raw) > MAX_ROW:
            raise DataError(f"{path}: {TOO_LARGE.detail}")
        return raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as UTF-8 text ({error})") from error
