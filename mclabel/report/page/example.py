"""The parts of the report that show examples: one labelled solution, and the trees of searches.

The solution stands at the head of the report, step by step. The trees of a few problems are opened
node by node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mclabel.core.records import LabeledSolution, Outcome, StepLabel
from mclabel.report.page.html import MAX_CELL, Html, draw, join, left_out, paragraph
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
"""Of a solution that is quick to read."""
MAX_CHARACTERS = 1500
"""Of its text."""
MAX_SHOWN = 14
"""Steps; of a longer solution those around its first error."""
_BEFORE = 8
"""Of them before the first error."""

OUTCOMES = {
    Outcome.RIGHT: "right",
    Outcome.WRONG: "wrong",
    Outcome.TRUNCATED: "cut",
    Outcome.UNGRADED: "ungraded",
}
_COUNTED = "Steps are counted from 0."
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
        if not at:
            return None
        before, there = (shown_value(step) for step in self.row.steps[at - 1 : at + 1])
        return None if before is None or there is None else before - there


def more_telling(one: Example | None, other: Example) -> Example:
    """The one of two that is shown: the higher rank, then the lower id, in whatever order met."""
    if one is None:
        return other
    ids = [example.row.solution.id for example in (one, other)]
    if one.rank != other.rank:
        return max(one, other, key=lambda example: example.rank)
    return one if ids[0] <= ids[1] else other


def shown_value(step: StepLabel) -> float | None:
    """As labelled, else the expected value of a Bayesian estimator."""
    return step.mean if step.value is None else step.value


def example_part(example: Example, *, run: str = "", is_code: bool = False) -> Html:
    """The solution with its problem and, of every step, value, interval, counts and decision.

    Args:
        example: which one.
        run: its run, where there are several.
        is_code: whether its steps are of code.
    """
    row = example.row
    start, end = _window(row)
    places = places_by_step(row.consensus, row.solution.steps)
    steps = [_step(example, number, places.get(number, ())) for number in range(start, end)]
    count = len(row.steps)
    rest = "" if end - start == count else f"Steps {start} to {end - 1} of {count} are shown. "
    return draw(
        "example",
        problem=row.problem.text,
        facts=_verdicts(example),
        steps=steps,
        start=start,
        is_code=is_code,
        notes=[rest + _reading(example), _rule(example) + (f" Run {run}." if run else "")],
    )


def _window(row: LabeledSolution) -> tuple[int, int]:
    """Which steps are shown."""
    start = max(0, min((row.first_error or 0) - _BEFORE, len(row.steps) - MAX_SHOWN))
    return start, min(len(row.steps), start + MAX_SHOWN)


Mark = tuple[str, str]
"""Colour and words of what is said of a step or an answer."""


def _verdicts(example: Example) -> list[tuple[str, str | None, list[Mark]]]:
    """Facts about the solution: name, words and marks."""
    row = example.row
    outcome, prediction = row.solution.outcome, row.solution.prediction
    answer = None if prediction is None else cut(prediction)
    facts: list[tuple[str, str | None, list[Mark]]] = [
        ("Answer", answer, [(outcome, OUTCOMES[outcome])]),
        ("Gold", cut(row.problem.answer), []),
        ("First error, labelled", _labelled(row), []),
    ]
    if example.has_truth:
        mark = ("", "agrees") if example.truth == row.first_error else ("differs", "differs")
        said = [mark] if row.is_decided else []  # what is undecided differs from nothing
        facts.append(("First error, in truth", _place(example.truth), said))
    if (consensus := row.consensus) is not None:
        mark = ("" if consensus.kept else "differs", kept_word(consensus))
        facts.append((f"Consensus, {rule_name(consensus)}", "", [mark]))
        facts += [(source, words, []) for source, words in opinions_words(consensus)]
    return facts


def _step(example: Example, number: int, places: Sequence[Place]) -> Html:
    row = example.row
    label = row.steps[number]
    marks = []
    if number == row.first_error:
        also = example.has_truth and example.truth == number
        marks.append(("error", "first error, also in truth" if also else "first error"))
    elif example.has_truth and number == example.truth:
        marks.append(("differs" if row.is_decided else "", "first error in truth"))
    return draw(
        "step",
        number=number,
        word=_WORDS[label.hard],
        value=shown_value(label),
        label=label,
        marks=marks,
        pieces=_pieces(row.solution.steps[number].text, places),
        reasons=[place.words for place in places],
        known=_known(row, number),
    )


def _pieces(text: str, places: Sequence[Place]) -> list[tuple[str, str]]:
    """The parts of a step's text, with the words of the places that cover them."""
    body, left = step_body(text)
    moved = [
        replace(place, start=max(0, place.start - left), end=max(0, place.end - left))
        for place in places
    ]
    parts = pieces(body[:MAX_CELL], moved)
    shown = [(part, "\n".join(place.words for place in over)) for part, over in parts]
    return [*shown, (left_out(body), "")]


def _known(row: LabeledSolution, number: int) -> str:
    """Counts, interval and, of a Bayesian estimator, the chance of the first error."""
    label = row.steps[number]
    counts = label.counts
    parts = []
    if counts.num_rollouts:
        rest = [
            f"{count} {name}"
            for count, name in (
                (counts.num_wrong, "wrong"),
                (counts.num_truncated, "cut"),
                (counts.num_ungraded, "unknown"),
            )
            if count
        ]
        parts.append(", ".join([f"{counts.num_right} of {counts.num_rollouts} right", *rest]))
        if by_completer := row.counts_by_completer(number):
            parts.append(by_completer)
    if label.low is not None and label.high is not None:
        parts.append(f"95% {label.low:.2f} to {label.high:.2f}")
    if row.posterior is not None:
        parts.append(f"chance of first error {row.posterior[number]:.2f}")
    if label.is_outcome:
        parts.append("last step: the outcome itself")
    elif not counts.num_rollouts:
        parts.append("no rollouts of its own")
    return " · ".join(parts)


def _reading(example: Example) -> str:
    at = example.row.first_error
    if not at or example.fall is None:
        return "A step's value is the share of rollouts from there that end right. " + _COUNTED
    before, there = (shown_value(step) for step in example.row.steps[at - 1 : at + 1])
    return (
        "A step's value is the share of rollouts from there that end right: it falls from "
        f"{before:.2f} to {there:.2f} at step {at}, the first one labelled wrong. {_COUNTED}"
    )


def _rule(example: Example) -> str:
    """Why it is this solution, in words."""
    inside, agrees, quick, _ = example.rank
    if not inside:
        return (
            "No wrong solution has its first error after the first step and before the last; of "
            "the others this one is the most telling."
        )
    truly = ", labelled where it truly is" if example.has_truth and agrees else ""
    read = f", {MIN_STEPS} to {MAX_STEPS} steps" if quick else ""
    return (
        "Chosen by rule, as a clear case and not as a typical one: of the wrong solutions with "
        f"the first error inside{truly}{read}, the one whose value falls most there."
    )


def _labelled(row: LabeledSolution) -> str:
    is_unknown = row.first_error is None and not row.is_decided
    return "undecided" if is_unknown else _place(row.first_error)


def _place(index: int | None) -> str:
    return "none" if index is None else f"step {index}"


MAX_NODES = 150
"""Nodes shown of a tree."""
MAX_LEVELS = 60
"""Nodes one below the other: a page cannot nest without end."""
MAX_TEXT = 300
"""Characters shown of a node, and of an answer."""

RIGHT, MISSED, NONE = "the result is right", "a right one was not chosen", "none is right"
_OUTCOMES = ("right", "wrong")


def trees_part(store: Store) -> Html | None:
    """The first tree of each kind: with a right result, with one missed, with none.

    Raises:
        DamagedFile: a file of trees is missing or damaged.

    Returns:
        None of a run that is no search.
    """
    if not has_trees(store):
        return None
    found: dict[str, StoredTree] = {}
    for tree in read_trees(store):
        found.setdefault(_kind(tree), tree)
        if len(found) == len((RIGHT, MISSED, NONE)):
            break
    shown = [_tree(kind, found[kind]) for kind in (RIGHT, MISSED, NONE) if kind in found]
    note = (
        "The first problem of each kind. Below each beginning stand its continuations, with the "
        "score of the last step and how often it was sampled. Grey: given up, or never finished. "
        "Weight: how much a finished solution counts in a vote."
    )
    return join(*shown, paragraph(note, "quiet"))


def _kind(tree: StoredTree) -> str:
    if tree.is_right:
        return RIGHT
    return MISSED if any(node.outcome == "right" for node in tree.results) else NONE


def _tree(kind: str, tree: StoredTree) -> Html:
    nodes = {node.id: node for node in tree.nodes}
    used = {name for node in tree.results for name in _path(node.id, nodes)}
    kept = _kept(tree, nodes)
    children: dict[str, list[StoredNode]] = defaultdict(list)
    for node in tree.nodes:
        if node.id in kept:
            children[node.parent].append(node)
    opened = set(_path(tree.chosen, nodes)) if tree.chosen is not None else set()
    left_out = len(nodes) - len(kept)
    facts = (
        f"{len(nodes):,} nodes, {len(tree.results):,} different finished solutions, "
        f"{tree.cost.num_sampled:,} tokens sampled, {tree.cost.num_scored:,} scored."
        + (f" {left_out:,} nodes are left out." if left_out else "")
    )
    return draw(
        "tree",
        title=f"{tree.problem_id[:80]}: {kind}",
        problem=tree.problem,
        facts=f"Gold: {_cut(tree.answer)}. {facts}",
        nodes=[_node(node, tree, children, used, opened) for node in children[""]],
    )


def _path(name: str, nodes: Mapping[str, StoredNode]) -> list[str]:
    """Ids from the first node to the named one."""
    found = []
    while name:
        found.append(name)
        name = nodes[name].parent
    return found[::-1]


def _kept(tree: StoredTree, nodes: Mapping[str, StoredNode]) -> set[str]:
    """Ids of the nodes that are shown: the result's, those of the best solutions, then the rest."""
    results = sorted(tree.results, key=lambda node: (node.id != tree.chosen, -(node.score or 0.0)))
    kept: set[str] = set()
    for node in (*results, *tree.nodes):
        fresh = [name for name in _path(node.id, nodes)[:MAX_LEVELS] if name not in kept]
        if len(kept) + len(fresh) <= MAX_NODES:
            kept.update(fresh)
    return kept


def _node(
    node: StoredNode,
    tree: StoredTree,
    children: Mapping[str, Sequence[StoredNode]],
    used: Iterable[str],
    opened: Iterable[str],
) -> Html:
    return draw(
        "node",
        words=_cut(step_body("".join(node.steps))[0] or "(nothing)"),
        measures=_measures(node),
        marks=_marks(node, tree),
        below=[_node(one, tree, children, used, opened) for one in children.get(node.id, ())],
        is_used=node.id in used,
        is_open=node.id in opened,
    )


def _measures(node: StoredNode) -> str:
    score = f"score {node.scores[-1]:.2f}" if node.scores else "not scored"
    return score + (f", sampled {node.count:,} times" if node.count > 1 else "")


def _marks(node: StoredNode, tree: StoredTree) -> list[tuple[str, str]]:
    """What is said of a node: colours and words."""
    found: list[tuple[str, str]] = []
    if node.weight is not None:
        outcome = node.outcome if node.outcome in _OUTCOMES else ""
        words = f"{node.outcome}: {_cut(node.prediction or 'no answer')}, weight {node.weight:.3g}"
        found.append((outcome, words))
    elif node.is_finished:
        found.append(("", "finished, does not count"))
    if node.is_cut:
        found.append(("", "cut: no room left"))
    if node.id == tree.chosen:
        found.append(("differs", "chosen"))
    return found


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
