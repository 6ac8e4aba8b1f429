"""Reads and counts the opinions of a judging job, reads its input, and prints judged solutions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mclabel.core.errors import RejectReason, ShardError
from mclabel.core.records import Claim, Consensus, SourceOpinion, Step
from mclabel.core.seeds import content_id
from mclabel.core.settings import read_record
from mclabel.judge.base import Answer, JudgedItem, Opinion
from mclabel.prm.scoring.items import (
    FILES,
    SolutionItem,
    Solutions,
    convert_row_to_item,
    convert_solution_to_item,
    read_file_items,
)
from mclabel.prm.scoring.layout import OUR_SPLIT, split_into_steps
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.manifest import MANIFEST, read_manifest, read_manifest_config
from mclabel.run.shards.opinions import TASK, iter_opinion_rows
from mclabel.run.shards.store import Store
from mclabel.show.solutions import (
    describe_opinion,
    escape_unprintable_text,
    group_passages_by_step,
    render_step_with_marks,
)


@dataclass(frozen=True, kw_only=True)
class OpinionRun:
    """The opinions of one judge on the solutions of a run or a file."""

    location: str
    judge: str
    """Name of the judge in a configuration (`kind`), such as `critic`."""
    claim: Claim
    solutions: str
    """File, folder or URL of the judged solutions, as it was given in the command."""
    opinions: dict[str, Opinion]
    """Opinions by solution id; rejected solutions are missing."""
    num_steps: dict[str, int]
    """Number of steps of each solution, by its id."""
    texts: dict[str, str]
    """Hash of each solution's problem and steps (`hash_texts`), by its id."""

    @classmethod
    def read(cls, location: str) -> OpinionRun:
        """Read a run of `mclabel judge`.

        Raises:
            ShardError: the location is not a run of `mclabel judge`, or its shards are damaged.
        """
        store = Store(location)
        recorded = _read_recorded_config(store)
        opinions, num_steps, texts = {}, {}, {}
        for row in iter_opinion_rows(store):
            opinions[row["id"]] = read_opinion(location, row)
            num_steps[row["id"]] = row["num_steps"]
            item = _make_judged_item(location, row, _read_input_row(location, row))
            steps = split_item_steps(item, recorded["judge"]["split"])
            texts[row["id"]] = hash_texts(item.problem, steps)
        return cls(
            location=location,
            judge=recorded["judge"]["kind"],
            claim=recorded["judge"]["claim"],
            solutions=str(
                (read_manifest(store, MANIFEST) or {}).get("input", {}).get("solutions", "")
            ),
            opinions=opinions,
            num_steps=num_steps,
            texts=texts,
        )


def hash_texts(problem: str, steps: Sequence[str]) -> str:
    """Return a hash of the texts of a problem and of a solution's steps."""
    return content_id("texts", problem, list(steps))


def read_text_digests(source: Store) -> dict[str, str]:
    """Return the hash of each solution of a labelling run (`hash_texts`), by solution id."""
    return {
        row.solution.id: hash_texts(row.problem.text, [step.text for step in row.solution.steps])
        for row in read_labels(source)
    }


def read_opinion(location: str, row: Mapping[str, Any]) -> Opinion:
    """Return the opinion that a row of an opinion shard stores.

    Args:
        location: location of the run.
        row: row of a shard.

    Raises:
        ShardError: the row does not hold a valid opinion.
    """
    try:
        return read_record(Opinion, {field.name: row[field.name] for field in fields(Opinion)})
    except ValueError as error:
        raise ShardError(
            f"{location}: the opinion on solution {row['id']!r} is not in the form that mclabel "
            f"writes ({error}). Judge its solutions again, into a new folder"
        ) from error


def read_judged_rows(location: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the id and the input row of each judged solution of a run.

    Raises:
        ShardError: a shard is damaged, or a row is not JSON.
    """
    for row in iter_opinion_rows(Store(location)):
        yield row["id"], _read_input_row(location, row)


@dataclass(frozen=True, kw_only=True)
class SolutionOpinion:
    """A solution with the opinion of a judge on it."""

    id: str
    problem_id: str
    """Id of the problem; empty if the input row has none."""
    problem: str
    steps: tuple[str, ...]
    judge: str
    """Name of the judge in a configuration (`kind`), such as `critic`."""
    claim: Claim
    opinion: Opinion


def read_judged_solutions(location: str) -> Iterator[SolutionOpinion]:
    """Yield each judged solution of a run with its opinion; only one shard is in memory.

    Raises:
        ShardError: the location is not a run of `mclabel judge`, a shard is damaged, or a row is
            not a solution.
    """
    store = Store(location)
    judge = _read_recorded_config(store)["judge"]
    for row in iter_opinion_rows(store):
        content = _read_input_row(location, row)
        item = _make_judged_item(location, row, content)
        yield SolutionOpinion(
            id=row["id"],
            problem_id=str(content.get("problem_id", "")),
            problem=item.problem,
            steps=split_item_steps(item, judge["split"]),
            judge=judge["kind"],
            claim=judge["claim"],
            opinion=read_opinion(location, row),
        )


def _read_input_row(location: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the input row of a judged solution, which its row in a shard stores as JSON."""
    try:
        content = json.loads(row["input"])
    except (ValueError, RecursionError) as error:
        raise _make_invalid_row_error(location, row, str(error)) from error
    if not isinstance(content, dict):
        raise _make_invalid_row_error(
            location, row, f"must be an object, is a {type(content).__name__}"
        )
    return content


def _make_judged_item(
    location: str, row: Mapping[str, Any], stored_input_row: Mapping[str, Any]
) -> SolutionItem:
    """Return the judged solution of a row of a shard.

    Args:
        location: location of the run.
        row: row of a shard.
        stored_input_row: input row that the row of the shard stores.
    """
    item = convert_row_to_item(row["row"], f"solution {row['id']}", stored_input_row)
    if isinstance(item, RejectReason):
        raise _make_invalid_row_error(location, row, item.detail)
    return item


def _make_invalid_row_error(location: str, row: Mapping[str, Any], fault: str) -> ShardError:
    return ShardError(
        f"{location}: the input of solution {row['id']!r} is not a valid row ({fault}). Judge its "
        "solutions again, into a new folder"
    )


def _read_recorded_config(store: Store) -> dict[str, Any]:
    """Return the recorded configuration of a run of `mclabel judge`."""
    recorded = read_manifest_config(store, MANIFEST)
    if recorded is None or recorded.get("task") != TASK:
        raise ShardError(
            f"{store.location}: is not a run of `mclabel judge`. Give the `out` of `mclabel judge`"
        )
    return recorded


@dataclass(kw_only=True)
class OpinionCounts:
    """Counts of a judge's opinions."""

    out: str
    num_judged: int = 0
    num_with_error: int = 0
    num_unknown: int = 0
    num_failed_answers: int = 0
    """Number of failed requests to a critic's model; each failure is an unknown vote."""
    num_tokens: int = 0
    """Number of tokens of all opinions. Answers whose number of tokens is not reported are left
    out."""
    num_uncounted_answers: int = 0
    """Number of answers for which the service does not report the number of tokens."""
    claim: Claim = "where"
    solutions: str = ""
    """File, folder or URL of the judged solutions."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Number of unknown opinions by reason."""
    failures: Counter[str] = field(default_factory=Counter)
    """Number of failed answers by error message."""

    @property
    def no_result_message(self) -> str | None:
        """Message that all opinions are unknown; None if at least one is known."""
        if not self.num_judged or self.num_unknown < self.num_judged:
            return None
        (reason, _), *_ = self.reasons.most_common(1)
        return (
            f"all {self.num_judged:,} opinions are unknown, so the job has no result. "
            f"The most frequent reason: {reason or 'the judge gave none'}"
        )

    def lines(self) -> Iterator[str]:
        """Yield the lines of the summary for the terminal."""
        meaning = (
            "a first error at or before a step" if self.claim == "at_or_before" else "an error"
        )
        tokens = f", {self.num_tokens:,} tokens" if self.num_tokens else ""
        yield (
            f"{self.num_judged:,} solutions judged: {meaning} in {self.num_with_error:,}, "
            f"unknown {self.num_unknown:,}{tokens}"
        )
        shown = self.reasons.most_common(3)
        for reason, count in shown:
            yield f"  unknown {count:,} times: {reason or 'the judge gave no reason'}"
        if self.num_failed_answers:
            (why, _), *_ = self.failures.most_common(1)
            yield f"  {self.num_failed_answers:,} answers failed, most often because: {why}"
        if self.num_uncounted_answers:
            yield (
                f"  The tokens of {self.num_uncounted_answers:,} answers are not counted, because "
                "the service reports no usage"
            )
        if others := self.num_unknown - sum(count for _, count in shown):
            yield f"  unknown {others:,} times for other reasons"
        if self.solutions.endswith(FILES):
            use = f"Measure them on ProcessBench: mclabel eval processbench {self.solutions}"
            yield f"The opinions are in {self.out}. {use} --opinions {self.out}"
        else:
            use = f"mclabel combine {self.solutions} {self.out} -o OUT"
            yield f"The opinions are in {self.out}. Combine them: {use}"


def count_opinions(location: str) -> OpinionCounts:
    """Return the counts of the opinions of a job, which may still be running.

    Raises:
        ShardError: the opinions cannot be read.
    """
    run = OpinionRun.read(location)
    totals = OpinionCounts(out=location, claim=run.claim, solutions=run.solutions)
    for opinion in run.opinions.values():
        totals.num_judged += 1
        totals.num_with_error += opinion.first_error is not None
        totals.num_unknown += not opinion.is_known
        counts = [answer.num_tokens for answer in opinion.answers]
        totals.num_uncounted_answers += counts.count(None)
        num_counted = sum(filter(None, counts))
        totals.num_tokens += num_counted if opinion.num_tokens is None else opinion.num_tokens
        for answer in opinion.answers:
            if answer.finish_reason == "failed":
                totals.num_failed_answers += 1
                totals.failures[answer.text[:120]] += 1
        if not opinion.is_known:
            totals.reasons[opinion.reason[:120]] += 1
    return totals


REFERENCES = ("reference_solution", "reference", "answer")
"""Columns of a file that may hold a problem's reference. The first one with a text is used."""


def read_judged_input(source: str, *, strict: bool = False, split: str = OUR_SPLIT) -> Solutions:
    """Return the solutions of a file or of a labelling run, with their references.

    Args:
        source: path or URL of a `.jsonl`, `.json`, `.parquet` or `.csv` file, or folder or URL of a
            labelling run. A row of a file has `problem`, and `solution` (one text) or `steps` (list
            of strings).
        split: name of the rule of `split_into_steps` that splits a solution text into steps.
        strict: True if a row that cannot be used is an error; otherwise such a row is rejected.

    Raises:
        DataError: the input cannot be read, or has no solution that can be judged.
        ShardError: the run has no labels, or its shards are damaged.
    """
    if source.endswith(FILES):
        return Solutions(lambda: _read_file_rows(source, split), source=source, strict=strict)
    store = Store(source)
    return Solutions(lambda: _read_run_rows(store), source=source, strict=strict)


def _read_file_rows(source: str, split: str) -> Iterator[SolutionItem | tuple[int, RejectReason]]:
    for item in read_file_items(source):
        if not isinstance(item, SolutionItem):
            yield item
            continue
        row = json.loads(item.row)
        texts = (row.get(name) for name in REFERENCES)
        reference = next((t for t in texts if isinstance(t, str) and t.strip()), None)
        yield _convert_to_judged_item(item, split_item_steps(item, split), reference)


def _read_run_rows(store: Store) -> Iterator[SolutionItem]:
    for number, labeled in enumerate(read_labels(store), 1):
        if labeled.solution.steps:
            item = convert_solution_to_item(number, labeled)
            yield _convert_to_judged_item(
                item, split_item_steps(item, "line"), labeled.problem.answer
            )


def split_item_steps(item: SolutionItem, split: str) -> tuple[str, ...]:
    """Return the texts of a solution's steps; a solution given as one text is split by a rule."""
    return tuple(split_into_steps(item.steps, split)) if isinstance(item.steps, str) else item.steps


def _convert_to_judged_item(
    item: SolutionItem, steps: tuple[str, ...], reference: str | None
) -> JudgedItem:
    return JudgedItem(
        id=item.id,
        number=item.number,
        place=item.place,
        row=item.row,
        problem=item.problem,
        steps=steps,
        is_separated=item.is_separated,
        reference=reference,
    )


MAX_ANSWER = 400
"""Maximum number of characters of an answer that are printed: the last ones, since an answer ends
with its verdict."""


def print_judged_solution(console: Console, judged: SolutionOpinion) -> None:
    """Print a problem, a solution and the opinion on it.

    Args:
        console: console to print on.
        judged: solution with its opinion.
    """
    opinion = judged.opinion
    source_opinion = SourceOpinion(
        source=judged.judge,
        claim=judged.claim,
        is_known=opinion.is_known,
        first_error=opinion.first_error,
        flags=opinion.flags,
    )
    head = Text(escape_unprintable_text(f"{judged.id}  {judged.problem_id}".rstrip()), style="bold")
    head.append(f"  {escape_unprintable_text(judged.judge)}: ", style="dim")
    head.append(describe_opinion(source_opinion), style=_choose_opinion_style(source_opinion))
    if opinion.sureness is not None:
        head.append(f", sure {opinion.sureness:.2f}", style="dim")
    if opinion.reason:
        head.append(f" ({escape_unprintable_text(opinion.reason)})", style="dim")
    console.print(head)
    console.print(Text(escape_unprintable_text(judged.problem)), style="dim")
    table = Table(box=None, padding=(0, 1), show_header=False)
    for column in ("mark", "score", "index"):
        table.add_column(column, no_wrap=True)
    table.add_column("step", overflow="fold")
    steps = [Step(text=text, end=0) for text in judged.steps]
    consensus = Consensus(rule="", kept=True, opinions=(source_opinion,))
    places = group_passages_by_step(consensus, steps)
    mark = "at or before" if judged.claim == "at_or_before" else "first error"
    for index, step in enumerate(steps):
        score = f"{opinion.scores[index]:.2f}" if index < len(opinion.scores) else ""
        is_named = index == opinion.first_error
        table.add_row(
            Text(mark if is_named else "", style="bold red"),
            Text(score, style="dim"),
            Text(str(index), style="dim"),
            render_step_with_marks(step.text, "red" if is_named else "", places.get(index, ())),
        )
    console.print(table)
    if opinion.votes:
        votes = [_describe_vote(vote, len(steps)) for vote in opinion.votes]
        console.print(Text(f"votes: {', '.join(votes)}"), style="dim")
    for answer in opinion.answers:
        console.print(_format_answer(answer))
    console.print()


def _choose_opinion_style(opinion: SourceOpinion) -> str:
    if not opinion.is_known:
        return "yellow"
    return "green" if opinion.first_error is None else "bold red"


def _describe_vote(vote: int, num_steps: int) -> str:
    if vote < 0:
        return "unknown"
    return "no error" if vote == num_steps else f"step {vote}"


def _format_answer(answer: Answer) -> Text:
    end = "" if answer.finish_reason == "stop" else f" ({answer.finish_reason})"
    text = answer.text.strip()
    cut = "" if len(text) <= MAX_ANSWER else "…"
    size = "tokens unknown" if answer.num_tokens is None else f"{answer.num_tokens:,} tokens"
    line = Text(f"answer {answer.number}{end}, {size}: ", style="dim")
    return line.append(escape_unprintable_text(cut + text[-MAX_ANSWER:]))
