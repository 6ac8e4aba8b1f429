"""The parts of the report that show examples: one labelled solution, and the trees of searches.

The solution stands at the head of the report, step by step. The trees of a few problems are opened
node by node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mclabel.core.records import LabeledSolution, Outcome
from mclabel.report.page.html import MAX_CELL, left_out
from mclabel.run.shards.store import Store
from mclabel.run.shards.trees import StoredNode, StoredTree, has_trees, read_trees
from mclabel.show.solutions import (
    Place,
    kept_word,
    opinions_words,
    pieces,
    places_by_step,
    rule_name,
)
from mclabel.show.texts import cut, step_body

MIN_STEPS, MAX_STEPS = 3, 9
"""Limits on the number of steps of a solution that is quick to read."""
MAX_CHARACTERS = 1500
"""Maximum number of characters of its text."""
MAX_SHOWN = 14
"""Steps; of a longer solution those around its first error."""
_BEFORE = 8
"""Maximum number of steps shown before the first error."""

_WORDS = {True: "sound", False: "wrong", None: "no verdict"}


@dataclass(frozen=True, kw_only=True)
class Example:
    """A solution and what decided that it is shown."""

    row: LabeledSolution
    has_truth: bool
    truth: int | None
    """True first error; None is none, or not known."""

    @property
    def rank(self) -> tuple[bool, bool, bool, float]:
        """The higher, the more it shows of what a label is.

        Wrong, with the first error after its first step and before its last; labelled where the
        error truly is, as far as known; quick to read; the fall of the value at the first error.
        """
        row, at = self.row, self.row.first_error
        count = len(row.steps)
        inside = row.solution.outcome is Outcome.WRONG and at is not None and 0 < at < count - 1
        return (
            inside,
            not self.has_truth or (self.row.is_decided and self.truth == at),
            MIN_STEPS <= count <= MAX_STEPS
            and len(row.solution.text) + len(row.problem.text) <= MAX_CHARACTERS,
            self.fall or 0.0,
        )

    @property
    def fall(self) -> float | None:
        """Value of the step before the first error less the value there."""
        at = self.row.first_error
        values = [step.estimate for step in self.row.steps[at - 1 : at + 1]] if at else []
        return None if not values or None in values else values[0] - values[1]  # type: ignore[operator]


def more_telling(best: Example | None, other: Example) -> Example:
    """Return the one of two solutions to show: the higher rank, then the lower id."""
    if best is None:
        return other
    return min(best, other, key=lambda each: ([-part for part in each.rank], each.row.solution.id))


def example_data(example: Example) -> dict[str, Any]:
    """Return the solution, its problem, and per step the value, interval, counts and decision."""
    row, at = example.row, example.row.first_error
    places = places_by_step(row.consensus, row.solution.steps)
    start = max(0, min((at or 0) - _BEFORE, len(row.steps) - MAX_SHOWN))
    end = min(len(row.steps), start + MAX_SHOWN)
    inside, agrees, quick, _ = example.rank
    values = [step.estimate for step in row.steps]
    return {
        "problem": row.problem.text,
        "facts": list(_verdicts(example)),
        "start": start,
        "end": end,
        "num_steps": len(row.steps),
        "steps": [_step(example, number, places.get(number, ())) for number in range(start, end)],
        "falls": {"from": values[at - 1], "to": values[at], "at": at}
        if at and example.fall is not None
        else None,
        "is_inside": inside,
        "is_true": example.has_truth and agrees,
        "is_quick": quick,
    }


Mark = tuple[str, str]
"""Colour and words of what is said of a step or an answer."""


def _verdicts(example: Example) -> Iterator[tuple[str, str | None, list[Mark]]]:
    """Facts about the solution: name, words and marks."""
    row, truth = example.row, example.truth
    outcome, prediction = row.solution.outcome, row.solution.prediction
    answer = None if prediction is None else cut(prediction)
    yield "Answer", answer, [(outcome, outcome)]
    yield "Gold", cut(row.problem.answer), []
    is_unknown = row.first_error is None and not row.is_decided
    yield "First error, labelled", "undecided" if is_unknown else _place(row.first_error), []
    if example.has_truth:
        mark = ("", "agrees") if truth == row.first_error else ("differs", "differs")
        # what is undecided differs from nothing
        yield "First error, in truth", _place(truth), [mark] if row.is_decided else []
    if (consensus := row.consensus) is not None:
        mark = ("" if consensus.kept else "differs", kept_word(consensus))
        yield f"Consensus, {rule_name(consensus)}", "", [mark]
        yield from ((source, words, []) for source, words in opinions_words(consensus))


def _place(index: int | None) -> str:
    return "none" if index is None else f"step {index}"


def _step(example: Example, number: int, places: Sequence[Place]) -> dict[str, Any]:
    row = example.row
    label = row.steps[number]
    is_true = example.has_truth and number == example.truth
    marks: list[Mark] = []
    if number == row.first_error:
        marks.append(("error", "first error, also in truth" if is_true else "first error"))
    elif is_true:
        marks.append(("differs" if row.is_decided else "", "first error in truth"))
    return {
        "number": number,
        "word": _WORDS[label.hard],
        "value": label.estimate,
        "low": label.low,
        "high": label.high,
        "marks": marks,
        "pieces": _pieces(row.solution.steps[number].text, places),
        "reasons": [place.words for place in places],
        "known": _step_evidence(row, number),
    }


def _pieces(text: str, places: Sequence[Place]) -> list[tuple[str, str]]:
    """The parts of a step's text, with the words of the places that cover them."""
    body, indent = step_body(text)
    moved = [
        replace(place, start=max(0, place.start - indent), end=max(0, place.end - indent))
        for place in places
    ]
    parts = pieces(body[:MAX_CELL], moved)
    shown = [(part, "\n".join(place.words for place in over)) for part, over in parts]
    return [*shown, (left_out(body), "")]


def _step_evidence(row: LabeledSolution, number: int) -> str:
    """Counts, interval and, of a Bayesian estimator, the chance of the first error."""
    label, counts = row.steps[number], row.steps[number].counts
    tally = {
        "right": f"{counts.num_right} of {counts.num_rollouts}",
        "wrong": counts.num_wrong,
        "cut": counts.num_truncated,
        "unknown": counts.num_ungraded,
    }
    own = "" if counts.num_rollouts else "no rollouts of its own"
    parts = [
        ", ".join(f"{n} {name}" for name, n in tally.items() if n and counts.num_rollouts),
        row.counts_by_completer(number) if counts.num_rollouts else "",
        "" if label.low is None else f"95% {label.low:.2f} to {label.high:.2f}",
        "" if row.posterior is None else f"chance of first error {row.posterior[number]:.2f}",
        "last step: the outcome itself" if label.is_outcome else own,
    ]
    return " · ".join(part for part in parts if part)


MAX_NODES = 150
"""Nodes shown of a tree."""
MAX_LEVELS = 60
"""Nodes one below the other: a page cannot nest without end."""
MAX_TEXT = 300
"""Characters shown of a node, and of an answer."""

KINDS = RIGHT, MISSED, NONE = "the result is right", "a right one was not chosen", "none is right"
_OUTCOMES = ("right", "wrong")


def trees_data(store: Store) -> list[dict[str, Any]]:
    """The first tree of each kind: with a right result, with one missed, with none.

    Raises:
        DamagedFile: a file of trees is missing or damaged.

    Returns:
        Nothing of a run that is no search.
    """
    by_kind: dict[str, StoredTree] = {}
    for tree in read_trees(store) if has_trees(store) else ():
        by_kind.setdefault(_kind(tree), tree)
        if len(by_kind) == len(KINDS):
            break
    return [_tree(kind, by_kind[kind]) for kind in KINDS if kind in by_kind]


def _kind(tree: StoredTree) -> str:
    if tree.is_right:
        return RIGHT
    return MISSED if any(node.outcome == "right" for node in tree.results) else NONE


def _tree(kind: str, tree: StoredTree) -> dict[str, Any]:
    nodes = {node.id: node for node in tree.nodes}
    used = {name for node in tree.results for name in _path(node.id, nodes)}
    opened = set() if tree.chosen is None else set(_path(tree.chosen, nodes))
    kept = _kept(tree, nodes)
    children: dict[str, list[StoredNode]] = defaultdict(list)
    for node in tree.nodes:
        if node.id in kept:
            children[node.parent].append(node)

    def shown(node: StoredNode) -> dict[str, Any]:
        return {
            "text": _cut(step_body("".join(node.steps))[0] or "(nothing)"),
            "score": node.scores[-1] if node.scores else None,
            "count": node.count,
            "marks": list(_marks(node, tree)),
            "is_used": node.id in used,
            "is_open": node.id in opened,
            "below": [shown(child) for child in children[node.id]],
        }

    return {
        "kind": kind,
        "problem_id": tree.problem_id,
        "problem": tree.problem,
        "answer": _cut(tree.answer),
        "num_nodes": len(nodes),
        "num_left_out": len(nodes) - len(kept),
        "num_results": len(tree.results),
        "num_sampled": tree.cost.num_sampled,
        "num_scored": tree.cost.num_scored,
        "nodes": [shown(node) for node in list(children[""])],
    }


def _path(name: str, nodes: Mapping[str, StoredNode]) -> list[str]:
    """Return the ids from the first node to the named one."""
    names = []
    while name:
        names.append(name)
        name = nodes[name].parent
    return names[::-1]


def _kept(tree: StoredTree, nodes: Mapping[str, StoredNode]) -> set[str]:
    """Ids of the nodes that are shown: the result's, those of the best solutions, then the rest."""
    results = sorted(tree.results, key=lambda node: (node.id != tree.chosen, -(node.score or 0.0)))
    kept: set[str] = set()
    for node in (*results, *tree.nodes):
        fresh = [name for name in _path(node.id, nodes)[:MAX_LEVELS] if name not in kept]
        if len(kept) + len(fresh) <= MAX_NODES:
            kept.update(fresh)
    return kept


def _marks(node: StoredNode, tree: StoredTree) -> Iterator[Mark]:
    """Return the colours and words that mark a node."""
    if node.weight is not None:
        outcome = node.outcome if node.outcome in _OUTCOMES else ""
        words = f"{node.outcome}: {_cut(node.prediction or 'no answer')}, weight {node.weight:.3g}"
        yield outcome, words
    elif node.is_finished:
        yield "", "finished, does not count"
    if node.is_cut:
        yield "", "cut: context limit"
    if node.id == tree.chosen:
        yield "differs", "chosen"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
