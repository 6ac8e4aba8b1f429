"""A solution with its step values in the terminal.

A model's text is shown as plain text: control characters become visible codes, and markup in the
text has no effect.

The opinions in a consensus are shown in words. Names and reasons of their sources can be untrusted
texts. This module limits their length, and `escape_unprintable_text` makes their control
characters visible.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mclabel.core.records import (
    Consensus,
    Flag,
    LabeledSolution,
    Outcome,
    SourceOpinion,
    Step,
    StepLabel,
)
from mclabel.data.exchange.formats import find_imported_id
from mclabel.show.texts import shorten_answer, strip_step_text

MAX_TEXT = 2000
"""Maximum characters of one text."""


OUTCOME_STYLE = {
    Outcome.RIGHT: "green",
    Outcome.WRONG: "red",
    Outcome.TRUNCATED: "yellow",
    Outcome.UNGRADED: "yellow",
}


def show_solution(console: Console, row: LabeledSolution, truth: int | str | None = "") -> None:
    """Print a problem and one labelled solution.

    Args:
        console: console on which the solution is printed.
        row: solution with its labels.
        truth: 0-based index of the true first error; None if there is no error, "" if the truth is
            unknown.
    """
    name = find_imported_id(row) or f"{row.problem.id}  sample {row.solution.sample_index}"
    heading = Text(f"{escape_unprintable_text(name)}  ", style="bold")
    heading.append(row.solution.outcome, style=OUTCOME_STYLE[row.solution.outcome])
    heading.append(f"  answer {escape_unprintable_text(row.solution.prediction or 'none')}")
    gold = row.problem.answer
    heading.append(
        ", gold "
        f"{escape_unprintable_text(shorten_answer(gold) if row.problem.answer_is_json else gold)}",
        style="dim",
    )
    console.print(heading)
    console.print(Text(escape_unprintable_text(row.problem.text)), style="dim")
    table = Table(box=None, padding=(0, 1), show_header=False)
    for column in ("mark", "value", "interval", "counts"):
        table.add_column(column, no_wrap=True)
    if row.consensus is not None:  # opinions refer to steps by their index
        table.add_column("index", justify="right", no_wrap=True)
    table.add_column("step", overflow="fold")
    passages = group_passages_by_step(row.consensus, row.solution.steps)
    for index, (step, label) in enumerate(zip(row.solution.steps, row.steps, strict=True)):
        table.add_row(
            _format_error_mark(index, row, truth),
            Text(_format_value(label), style=_choose_label_style(label)),
            Text(
                ("" if label.low is None else f"[{label.low:.2f}, {label.high:.2f}]"), style="dim"
            ),
            Text(_format_counts(row, index), style="dim"),
            *([] if row.consensus is None else [Text(str(index), style="dim")]),
            render_step_with_marks(step.text, _choose_label_style(label), passages.get(index, ())),
        )
    console.print(table)
    if row.consensus is not None:
        console.print(_format_consensus(row.consensus))
    console.print()


def escape_unprintable_text(text: str) -> str:
    """Return at most MAX_TEXT characters of a text, with codes for unprintable characters."""
    cut = text[:MAX_TEXT]
    safe = "".join(
        character if character.isprintable() or character == "\n" else f"\\x{ord(character):02x}"
        for character in cut
    )
    return safe + (f"… ({len(text) - MAX_TEXT} more characters)" if len(text) > MAX_TEXT else "")


def render_step_with_marks(text: str, style: str, passages: Sequence[MarkedPassage]) -> Text:
    """Return a step's text with the marked passages underlined, and the remark on each below it.

    Args:
        text: text of the step.
        style: style of the text, as rich names it.
        passages: passages that sources have marked in the step.
    """
    body, indent = strip_step_text(text)
    styled = Text(escape_unprintable_text(body), style=style)
    for passage in passages:
        # The codes of control characters take more characters than the text itself.
        start, end = (
            len(escape_unprintable_text(body[: min(max(0, position - indent), MAX_TEXT)]))
            for position in (passage.start, passage.end)
        )
        styled.stylize("bold underline", start, end)
    for passage in passages:
        styled.append(f"\n  {escape_unprintable_text(passage.words)}", style="magenta")
    return styled


def _format_consensus(consensus: Consensus) -> Text:
    line = Text(f"{escape_unprintable_text(describe_rule(consensus))}: ")
    line.append(describe_kept(consensus), style="green" if consensus.kept else "bold yellow")
    described = ", ".join(
        f"{source}: {opinion_text}" for source, opinion_text in describe_opinions(consensus)
    )
    return line.append(f"  {escape_unprintable_text(described)}", style="dim")


def _format_error_mark(index: int, row: LabeledSolution, truth: int | str | None) -> Text:
    is_labelled_error = index == row.first_error
    if truth == "":
        return Text(
            "first error" if is_labelled_error else _name_error_state(row.steps[index]),
            style="bold red",
        )
    is_true_error = index == truth
    word = {
        (True, True): "first error",
        (True, False): "labelled error",
        (False, True): "true error",
        (False, False): _name_error_state(row.steps[index]),
    }[is_labelled_error, is_true_error]
    return Text(word, style="bold red" if is_labelled_error == is_true_error else "bold magenta")


def _name_error_state(label: StepLabel) -> str:
    """Return the labelled state of a step; empty if the step is sound or has no state."""
    return "" if label.state in (None, "sound") else str(label.state)


def _choose_label_style(label: StepLabel) -> str:
    if label.hard is None:
        return "yellow"
    if not label.hard:
        return "red"
    return "green" if label.value is None or label.value >= 0.5 else "dark_green"


def get_shown_value(source: str, value: float | None) -> float | None:
    """Return a step's value, or None for an imported rating, which is not an estimate."""
    return None if source == "given" and value in (0, 0.5, 1) else value


def _format_value(label: StepLabel) -> str:
    if (value := get_shown_value(label.source, label.value)) is not None:
        return f"{value:.2f}"
    return {True: "sound", False: "wrong", None: "?"}[label.hard]


def _format_counts(row: LabeledSolution, index: int) -> str:
    label = row.steps[index]
    counts = label.counts
    if not counts.num_rollouts:
        return label.source
    if by_completer := row.format_counts_by_completer(index):
        return by_completer
    num_undecided = counts.num_truncated + counts.num_ungraded
    return f"{counts.num_right}/{counts.num_rollouts}" + (
        f" ({num_undecided} undecided)" if num_undecided else ""
    )


MAX_OPINIONS = 20
"""Maximum number of opinions shown for a solution."""
MAX_PASSAGES = 20
"""Maximum number of marked passages shown for a step."""
MAX_NAME = 60
"""Maximum characters of the name of a source or a rule, or of a quoted passage."""
MAX_REASON = 300
"""Maximum characters of a reason."""


@dataclass(frozen=True, kw_only=True)
class MarkedPassage:
    """A part of a step's text that a source has marked."""

    start: int
    """0-based index of the first character. It is inside the step's text, even if the recorded
    index is not."""
    end: int
    """Index after the last character. It equals `start` if the passage has no characters."""
    words: str
    """Remark on the passage: its source, a quotation and the reason."""


def describe_opinion(opinion: SourceOpinion) -> str:
    """Return an opinion in words, with 0-based steps.

    The result is `step 3`, `at or before step 2`, `no error`, `nothing found` or `unknown`.
    """
    if not opinion.is_known:
        return "unknown"
    is_upper_bound = opinion.claim == "at_or_before"
    if opinion.first_error is None:
        return "nothing found" if is_upper_bound else "no error"
    return f"{'at or before ' if is_upper_bound else ''}step {opinion.first_error}"


def describe_opinions(consensus: Consensus) -> list[tuple[str, str]]:
    """Return pairs of a source and its opinion in words, in order.

    If there are more than MAX_OPINIONS, the last pair gives the number of those left out.
    """
    lines = [
        (_shorten_line(opinion.source, MAX_NAME), describe_opinion(opinion))
        for opinion in consensus.opinions[:MAX_OPINIONS]
    ]
    if (num_hidden := len(consensus.opinions) - MAX_OPINIONS) > 0:
        lines.append(("others", f"{num_hidden:,} not shown"))
    return lines


def describe_rule(consensus: Consensus) -> str:
    """Return the name of a consensus rule in one line, with at most MAX_NAME characters."""
    return _shorten_line(consensus.rule, MAX_NAME)


def describe_kept(consensus: Consensus) -> str:
    """Return whether a consensus keeps the solution, as `kept` or `not kept`."""
    return "kept" if consensus.kept else "not kept"


def group_passages_by_step(
    consensus: Consensus | None, steps: Sequence[Step]
) -> Mapping[int, Sequence[MarkedPassage]]:
    """Return the marked passages by the 0-based index of their step, from left to right.

    If a step has more than MAX_PASSAGES, the last entry gives the number of those left out.
    """
    by_step: dict[int, list[MarkedPassage]] = defaultdict(list)
    for opinion in () if consensus is None else consensus.opinions:
        for flag in opinion.flags:
            if 0 <= flag.step < len(steps):
                by_step[flag.step].append(
                    _convert_flag_to_passage(opinion.source, flag, steps[flag.step].text)
                )
    return {
        step: _limit_passages(sorted(passages, key=lambda passage: (passage.start, passage.end)))
        for step, passages in by_step.items()
    }


def split_at_passages(
    text: str, passages: Sequence[MarkedPassage]
) -> Iterator[tuple[str, list[MarkedPassage]]]:
    """Split a text where passages begin or end; yield each part with the passages that cover it."""
    inner_positions = {
        position
        for passage in passages
        for position in (passage.start, passage.end)
        if 0 < position < len(text)
    }
    for start, end in pairwise(sorted({0, len(text), *inner_positions})):
        yield (
            text[start:end],
            [passage for passage in passages if passage.start < end and passage.end > start],
        )


def _convert_flag_to_passage(source: str, flag: Flag, text: str) -> MarkedPassage:
    start = min(max(0, flag.start), len(text))
    end = min(max(start, flag.end), len(text))
    quote = " ".join(text[start:end][: MAX_NAME + 1].split())
    quoted = f", “{_shorten_line(quote, MAX_NAME)}”" if quote else ""
    return MarkedPassage(
        start=start,
        end=end,
        words=(
            f"{_shorten_line(source, MAX_NAME)}{quoted}: {_shorten_line(flag.reason, MAX_REASON)}"
        ),
    )


def _limit_passages(passages: list[MarkedPassage]) -> list[MarkedPassage]:
    """Return the first MAX_PASSAGES passages, and an entry with the number of those left out."""
    num_hidden = len(passages) - MAX_PASSAGES
    omission_note = (
        [MarkedPassage(start=0, end=0, words=f"{num_hidden:,} more not shown")]
        if num_hidden > 0
        else []
    )
    return passages[:MAX_PASSAGES] + omission_note


def _shorten_line(text: str, limit: int) -> str:
    """Return a text in one line, with at most `limit` characters."""
    line = text[: limit + 1].replace("\n", " ")
    return line if len(text) <= limit else f"{line[: limit - 1]}…"
