"""Solutions with the opinion of a judge, in the terminal, and what its model answered."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mclabel.core.records import Consensus, SourceOpinion, Step
from mclabel.judge.base import Answer
from mclabel.judge.opinions import SolutionOpinion
from mclabel.show.solutions import opinion_words, places_by_step, shown, step_text

MAX_ANSWER = 400
"""Characters of an answer that are shown: its last ones, since the verdict ends it."""


def show_judged(console: Console, judged: SolutionOpinion) -> None:
    """Print a problem, one solution and the opinion on it.

    Args:
        console: where to.
        judged: the solution with its opinion.
    """
    opinion = judged.opinion
    said = SourceOpinion(
        source=judged.judge,
        claim=judged.claim,
        is_known=opinion.is_known,
        first_error=opinion.first_error,
        flags=opinion.flags,
    )
    head = Text(shown(f"{judged.id}  {judged.problem_id}".rstrip()), style="bold")
    head.append(f"  {shown(judged.judge)}: ", style="dim")
    head.append(opinion_words(said), style=_style(said))
    if opinion.sureness is not None:
        head.append(f", sure {opinion.sureness:.2f}", style="dim")
    if opinion.reason:
        head.append(f" ({shown(opinion.reason)})", style="dim")
    console.print(head)
    console.print(Text(shown(judged.problem)), style="dim")
    table = Table(box=None, padding=(0, 1), show_header=False)
    for column in ("mark", "score", "index"):
        table.add_column(column, no_wrap=True)
    table.add_column("step", overflow="fold")
    steps = [Step(text=text, end=0) for text in judged.steps]
    consensus = Consensus(rule="", kept=True, opinions=(said,))
    places = places_by_step(consensus, steps)
    mark = "at or before" if judged.claim == "at_or_before" else "first error"
    for index, step in enumerate(steps):
        score = f"{opinion.scores[index]:.2f}" if index < len(opinion.scores) else ""
        is_named = index == opinion.first_error
        table.add_row(
            Text(mark if is_named else "", style="bold red"),
            Text(score, style="dim"),
            Text(str(index), style="dim"),
            step_text(step.text, "red" if is_named else "", places.get(index, ())),
        )
    console.print(table)
    if opinion.votes:
        votes = [_vote(vote, len(steps)) for vote in opinion.votes]
        console.print(Text(f"votes: {', '.join(votes)}"), style="dim")
    for answer in opinion.answers:
        console.print(_answer(answer))
    console.print()


def _style(said: SourceOpinion) -> str:
    if not said.is_known:
        return "yellow"
    return "green" if said.first_error is None else "bold red"


def _vote(vote: int, num_steps: int) -> str:
    if vote < 0:
        return "unknown"
    return "no error" if vote == num_steps else f"step {vote}"


def _answer(answer: Answer) -> Text:
    end = "" if answer.finish_reason == "stop" else f" ({answer.finish_reason})"
    text = answer.text.strip()
    cut = "" if len(text) <= MAX_ANSWER else "…"
    line = Text(f"answer {answer.number}{end}, {answer.num_tokens:,} tokens: ", style="dim")
    return line.append(shown(cut + text[-MAX_ANSWER:]))
