"""A solution with its step values in the terminal.

Text of a model is shown as text: control characters are made visible, markup is not read.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mclabel.core.records import Consensus, LabeledSolution, Outcome, StepLabel
from mclabel.show.opinions import Place, kept_word, opinions_words, places_by_step, rule_name
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
    body, left = step_body(text)
    found = Text(shown(body), style=style)
    for place in places:
        # control characters take more room where they are shown
        start, end = (
            len(shown(body[: min(max(0, at - left), MAX_SHOWN)])) for at in (place.start, place.end)
        )
        found.stylize("bold underline", start, end)
    for place in places:
        found.append(f"\n  {shown(place.words)}", style="magenta")
    return found


def _consensus_line(consensus: Consensus) -> Text:
    line = Text(f"{shown(rule_name(consensus))}: ")
    line.append(kept_word(consensus), style="green" if consensus.kept else "bold yellow")
    told = ", ".join(f"{source}: {words}" for source, words in opinions_words(consensus))
    return line.append(f"  {shown(told)}", style="dim")


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
    """What a step does behind the first error, where that is labelled."""
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
