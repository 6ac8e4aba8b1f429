"""A solution with its step values in the terminal.

Text of a model is shown as text: control characters are made visible, markup is not read.

What the sources of a consensus say of it is shown in words. Their names and reasons are somebody
else's text: they are bounded here, and made safe where they are shown.
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
from mclabel.show.texts import cut, step_body

MAX_SHOWN = 2000  # characters of one text


OUTCOME_STYLE = {
    Outcome.RIGHT: "green",
    Outcome.WRONG: "red",
    Outcome.TRUNCATED: "yellow",
    Outcome.UNGRADED: "yellow",
}


def show_solution(console: Console, row: LabeledSolution, truth: int | str | None = "") -> None:
    """Print a problem and one labelled solution.

    Args:
        console: where to.
        row: the solution.
        truth: index of the true first error, None for none; "" if it is not known.
    """
    head = Text(f"{row.problem.id}  sample {row.solution.sample_index}  ", style="bold")
    head.append(row.solution.outcome, style=OUTCOME_STYLE[row.solution.outcome])
    head.append(f"  answer {shown(row.solution.prediction or 'none')}")
    gold = row.problem.answer
    head.append(f", gold {shown(cut(gold) if row.problem.answer_is_json else gold)}", style="dim")
    console.print(head)
    console.print(Text(shown(row.problem.text)), style="dim")
    table = Table(box=None, padding=(0, 1), show_header=False)
    for column in ("mark", "value", "interval", "counts"):
        table.add_column(column, no_wrap=True)
    if row.consensus is not None:  # whose opinions name steps by their index
        table.add_column("index", justify="right", no_wrap=True)
    table.add_column("step", overflow="fold")
    places = places_by_step(row.consensus, row.solution.steps)
    for index, (step, label) in enumerate(zip(row.solution.steps, row.steps, strict=True)):
        table.add_row(
            _mark(index, row, truth),
            Text(_value(label), style=_style(label)),
            Text(_interval(label), style="dim"),
            Text(_counts(row, index), style="dim"),
            *([] if row.consensus is None else [Text(str(index), style="dim")]),
            step_text(step.text, _style(label), places.get(index, ())),
        )
    console.print(table)
    if row.consensus is not None:
        console.print(_consensus_line(row.consensus))
    console.print()


def shown(text: str) -> str:
    """`text` bounded, with every character that is not printable made visible."""
    cut = text[:MAX_SHOWN]
    safe = "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in cut)
    return safe + (f"… ({len(text) - MAX_SHOWN} more characters)" if len(text) > MAX_SHOWN else "")


def step_text(text: str, style: str, places: Sequence[Place]) -> Text:
    """A step with the places in it underlined, and below it what is wrong with each."""
    body, indent = step_body(text)
    styled = Text(shown(body), style=style)
    for place in places:
        # control characters take more room where they are shown
        start, end = (
            len(shown(body[: min(max(0, at - indent), MAX_SHOWN)]))
            for at in (place.start, place.end)
        )
        styled.stylize("bold underline", start, end)
    for place in places:
        styled.append(f"\n  {shown(place.words)}", style="magenta")
    return styled


def _consensus_line(consensus: Consensus) -> Text:
    line = Text(f"{shown(rule_name(consensus))}: ")
    line.append(kept_word(consensus), style="green" if consensus.kept else "bold yellow")
    described = ", ".join(f"{source}: {words}" for source, words in opinions_words(consensus))
    return line.append(f"  {shown(described)}", style="dim")


def _mark(index: int, row: LabeledSolution, truth: int | str | None) -> Text:
    labelled = index == row.first_error
    if truth == "":
        return Text("first error" if labelled else _state_word(row.steps[index]), style="bold red")
    true = index == truth
    word = {
        (True, True): "first error",
        (True, False): "labelled error",
        (False, True): "true error",
        (False, False): _state_word(row.steps[index]),
    }[labelled, true]
    return Text(word, style="bold red" if labelled == true else "bold magenta")


def _state_word(label: StepLabel) -> str:
    """Return what a step does behind the first error, where that is labelled."""
    return "" if label.state in (None, "sound") else str(label.state)


def _style(label: StepLabel) -> str:
    if label.hard is None:
        return "yellow"
    if not label.hard:
        return "red"
    return "green" if label.value is None or label.value >= 0.5 else "dark_green"


def _value(label: StepLabel) -> str:
    if label.value is not None:
        return f"{label.value:.2f}"
    return {True: "sound", False: "wrong", None: "?"}[label.hard]


def _interval(label: StepLabel) -> str:
    return "" if label.low is None else f"[{label.low:.2f}, {label.high:.2f}]"


def _counts(row: LabeledSolution, number: int) -> str:
    label = row.steps[number]
    counts = label.counts
    if not counts.num_rollouts:
        return label.source
    if by_completer := row.counts_by_completer(number):
        return by_completer
    extra = counts.num_truncated + counts.num_ungraded
    return f"{counts.num_right}/{counts.num_rollouts}" + (f" ({extra} undecided)" if extra else "")


MAX_OPINIONS = 20
"""Shown of a solution."""
MAX_PLACES = 20
"""Shown of a step."""
MAX_NAME = 60
"""Characters of a source, a rule or a quoted place."""
MAX_REASON = 300
"""Characters."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A place in a step that a source points at."""

    start: int
    """First character; places lie within their step, whatever was recorded."""
    end: int
    """Character behind it, `start` where it is between two characters."""
    words: str
    """Source and reason of the mark."""


def opinion_words(opinion: SourceOpinion) -> str:
    """`step 3`, `at or before step 2`, `no error`, `nothing found` or `unknown`; 0-based."""
    if not opinion.is_known:
        return "unknown"
    silent_on_the_rest = opinion.claim == "at_or_before"
    if opinion.first_error is None:
        return "nothing found" if silent_on_the_rest else "no error"
    return f"{'at or before ' if silent_on_the_rest else ''}step {opinion.first_error}"


def opinions_words(consensus: Consensus) -> list[tuple[str, str]]:
    """Sources and what each says, in order, the last for those that are too many to show."""
    lines = [
        (_line(opinion.source, MAX_NAME), opinion_words(opinion))
        for opinion in consensus.opinions[:MAX_OPINIONS]
    ]
    if (num_hidden := len(consensus.opinions) - MAX_OPINIONS) > 0:
        lines.append(("others", f"{num_hidden:,} not shown"))
    return lines


def rule_name(consensus: Consensus) -> str:
    """The rule of a consensus, bounded."""
    return _line(consensus.rule, MAX_NAME)


def kept_word(consensus: Consensus) -> str:
    """Return whether the solution"""
    return "kept" if consensus.kept else "not kept"


def places_by_step(
    consensus: Consensus | None, steps: Sequence[Step]
) -> Mapping[int, Sequence[Place]]:
    """Places by the index of their step, from left to right; of too many, the first and a count."""
    by_step: dict[int, list[Place]] = defaultdict(list)
    for opinion in () if consensus is None else consensus.opinions:
        for flag in opinion.flags:
            if 0 <= flag.step < len(steps):
                by_step[flag.step].append(_place(opinion.source, flag, steps[flag.step].text))
    return {
        step: _first(sorted(places, key=lambda place: (place.start, place.end)))
        for step, places in by_step.items()
    }


def pieces(text: str, places: Sequence[Place]) -> Iterator[tuple[str, list[Place]]]:
    """A text cut where places begin and end, each part with the places that cover it."""
    inside = {at for place in places for at in (place.start, place.end) if 0 < at < len(text)}
    for start, end in pairwise(sorted({0, len(text), *inside})):
        yield text[start:end], [p for p in places if p.start < end and p.end > start]


def _place(source: str, flag: Flag, text: str) -> Place:
    start = min(max(0, flag.start), len(text))
    end = min(max(start, flag.end), len(text))
    quote = " ".join(text[start:end][: MAX_NAME + 1].split())
    quoted = f", “{_line(quote, MAX_NAME)}”" if quote else ""
    words = f"{_line(source, MAX_NAME)}{quoted}: {_line(flag.reason, MAX_REASON)}"
    return Place(start=start, end=end, words=words)


def _first(places: list[Place]) -> list[Place]:
    """The first MAX_PLACES, and how many are left out."""
    num_hidden = len(places) - MAX_PLACES
    rest = [Place(start=0, end=0, words=f"{num_hidden:,} more not shown")] if num_hidden > 0 else []
    return places[:MAX_PLACES] + rest


def _line(text: str, limit: int) -> str:
    """A text in one line, bounded."""
    line = text[: limit + 1].replace("\n", " ")
    return line if len(text) <= limit else f"{line[: limit - 1]}…"
