"""The report's examples: one labelled solution, and the search trees of a few problems.

The head of the report shows the solution step by step. Readers open the trees node by node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mclabel.core.records import LabeledSolution, Outcome
from mclabel.data.exchange.formats import find_imported_id
from mclabel.report.page.html import MAX_CELL, format_omission_note
from mclabel.run.shards.store import Store
from mclabel.run.shards.trees import StoredNode, StoredTree, has_trees, read_trees
from mclabel.show.solutions import (
    MarkedPassage,
    describe_kept,
    describe_opinions,
    describe_rule,
    get_shown_value,
    group_passages_by_step,
    split_at_passages,
)
from mclabel.show.texts import shorten_answer, strip_step_text

MIN_STEPS, MAX_STEPS = 3, 9
"""Minimum and maximum number of steps of a solution that is quick to read."""
MAX_CHARACTERS = 1500
"""Maximum characters of problem and solution together, if they are quick to read."""
MAX_SHOWN_STEPS = 30
"""Maximum number of steps shown. For a longer solution, these are the steps around its first
error."""
MAX_STEPS_BEFORE = 8
"""Maximum number of steps shown before the first error."""

_SOURCE_WORDS = {
    "given": "imported label",
    "outcome": "outcome",
    "judge": "judge",
    "none": "no label",
}
_VERDICT_WORDS = {True: "sound", False: "wrong", None: "no verdict"}


@dataclass(frozen=True, kw_only=True)
class ExampleCandidate:
    """A candidate for the report's example: a labelled solution with its truth."""

    row: LabeledSolution
    has_truth: bool
    truth: int | None
    """0-based index of the true first error; None if there is none, or if it is unknown."""

    @property
    def rank(self) -> tuple[bool, bool, bool, float]:
        """Rank of the candidate; the highest rank is shown.

        The criteria, in order: the solution is wrong and its labelled first error is neither the
        first nor the last step; the label is not known to differ from the truth; the solution is
        quick to read; the value falls far at the first error.
        """
        row, first_error = self.row, self.row.first_error
        num_steps = len(row.steps)
        is_inner_error = (
            row.solution.outcome is Outcome.WRONG
            and first_error is not None
            and 0 < first_error < num_steps - 1
        )
        return (
            is_inner_error,
            not self.has_truth or (self.row.is_decided and self.truth == first_error),
            MIN_STEPS <= num_steps <= MAX_STEPS
            and len(row.solution.text) + len(row.problem.text) <= MAX_CHARACTERS,
            self.value_drop_at_first_error or 0.0,
        )

    @property
    def value_drop_at_first_error(self) -> float | None:
        """Value of the step before the first error minus the value of the first wrong step."""
        first_error = self.row.first_error
        steps = self.row.steps[first_error - 1 : first_error + 1] if first_error else ()
        values = [get_shown_value(step.source, step.estimate) for step in steps]
        return None if not values or None in values else values[0] - values[1]  # type: ignore[operator]


def choose_better_example(
    best: ExampleCandidate | None, other: ExampleCandidate
) -> ExampleCandidate:
    """Return which of two solutions to show: the one with the higher rank, then the lower id.

    Args:
        best: best candidate so far; None if there is none.
        other: other candidate.
    """
    if best is None:
        return other
    return min(
        best,
        other,
        key=lambda candidate: ([-part for part in candidate.rank], candidate.row.solution.id),
    )


def convert_example_to_page_data(example: ExampleCandidate) -> dict[str, Any]:
    """Return the data of an example for the page: the solution, its problem, and its steps.

    A step has its value, interval, rollout counts and verdict.
    """
    row, first_error = example.row, example.row.first_error
    passages = group_passages_by_step(row.consensus, row.solution.steps)
    start = max(0, min((first_error or 0) - MAX_STEPS_BEFORE, len(row.steps) - MAX_SHOWN_STEPS))
    end = min(len(row.steps), start + MAX_SHOWN_STEPS)
    is_inner_error, agrees_with_truth, is_quick, _ = example.rank
    gold = row.problem.gold
    test_inputs = gold.get("inputs", ()) if isinstance(gold, Mapping) else ()
    values = [step.estimate for step in row.steps]
    return {
        "id": find_imported_id(row) or f"{row.problem.id}, sample {row.solution.sample_index}",
        "problem": row.problem.text,
        "gold": row.problem.answer,
        "num_tests": len(test_inputs),
        "facts": list(_list_solution_facts(example)),
        "start": start,
        "end": end,
        "num_steps": len(row.steps),
        "steps": [
            _convert_step(example, number, passages.get(number, ())) for number in range(start, end)
        ],
        "falls": {"from": values[first_error - 1], "to": values[first_error], "at": first_error}
        if first_error and example.value_drop_at_first_error is not None
        else None,
        "is_inside": is_inner_error,
        "is_true": example.has_truth and agrees_with_truth,
        "is_quick": is_quick,
    }


Mark = tuple[str, str]
"""Colour and words of a remark on a step or an answer."""


def _list_solution_facts(example: ExampleCandidate) -> Iterator[tuple[str, str | None, list[Mark]]]:
    """Yield each fact about the solution, such as its answer or its labelled first error.

    A fact is its name, its words, and remarks on it.
    """
    row, truth = example.row, example.truth
    outcome, prediction = row.solution.outcome, row.solution.prediction
    yield (
        "Answer",
        (None if prediction is None else shorten_answer(prediction)),
        [(outcome, outcome)],
    )
    yield "Gold", shorten_answer(row.problem.answer), []
    is_unknown = row.first_error is None and not row.is_decided
    yield (
        "Labelled first error",
        "undecided" if is_unknown else _format_error_step(row.first_error),
        [],
    )
    if example.has_truth:
        mark = ("", "agrees") if truth == row.first_error else ("differs", "differs")
        # An undecided label neither agrees with the truth nor differs from it.
        yield "True first error", _format_error_step(truth), [mark] if row.is_decided else []
    if (consensus := row.consensus) is not None:
        mark = ("" if consensus.kept else "differs", describe_kept(consensus))
        yield f"Consensus, {describe_rule(consensus)}", "", [mark]
        yield from ((source, words, []) for source, words in describe_opinions(consensus))


def _format_error_step(index: int | None) -> str:
    return "none" if index is None else f"step {index}"


def _convert_step(
    example: ExampleCandidate, index: int, passages: Sequence[MarkedPassage]
) -> dict[str, Any]:
    row = example.row
    label = row.steps[index]
    is_true = example.has_truth and index == example.truth
    marks: list[Mark] = []
    if index == row.first_error:
        marks.append(
            ("error", ("labelled and true first error" if is_true else "labelled first error"))
        )
    elif is_true:
        marks.append(("differs" if row.is_decided else "", "true first error"))
    return {
        "number": index,
        "word": _VERDICT_WORDS[label.hard],
        "value": get_shown_value(label.source, label.estimate),
        "low": label.low,
        "high": label.high,
        "marks": marks,
        "pieces": _split_at_passages(row.solution.steps[index].text, passages),
        "reasons": [passage.words for passage in passages],
        "tally": f"{label.counts.num_right} of {label.counts.num_rollouts} right"
        if label.counts.num_rollouts
        else _SOURCE_WORDS.get(label.source, "no rollouts"),
        "known": _format_step_evidence(row, index),
    }


def _split_at_passages(text: str, passages: Sequence[MarkedPassage]) -> list[tuple[str, str]]:
    """Return pairs of a part of a step's text and the words of the passages that cover it.

    Args:
        text: text of the step.
        passages: passages that sources have marked in the step.
    """
    body, indent = strip_step_text(text)
    shifted_passages = [
        replace(passage, start=max(0, passage.start - indent), end=max(0, passage.end - indent))
        for passage in passages
    ]
    parts = split_at_passages(body[:MAX_CELL], shifted_passages)
    parts_and_words = [
        (part, "\n".join(passage.words for passage in covering_passages))
        for part, covering_passages in parts
    ]
    return [*parts_and_words, (format_omission_note(body), "")]


def _format_step_evidence(row: LabeledSolution, index: int) -> str:
    """Return a step's rollout counts, its interval and its probability of being the first error.

    Only Bayesian estimators give this probability.
    """
    label, counts = row.steps[index], row.steps[index].counts
    tally = {
        "right": f"{counts.num_right} of {counts.num_rollouts}",
        "wrong": counts.num_wrong,
        "truncated": counts.num_truncated,
        "ungraded": counts.num_ungraded,
    }
    no_rollouts_note = "" if counts.num_rollouts else "no rollouts from this step"
    parts = [
        ", ".join(
            f"{number} {name}" for name, number in tally.items() if number and counts.num_rollouts
        ),
        row.format_counts_by_completer(index) if counts.num_rollouts else "",
        "" if label.low is None else f"95% {label.low:.2f} to {label.high:.2f}",
        "" if row.posterior is None else f"probability of first error {row.posterior[index]:.2f}",
        "last step: labelled by the outcome" if label.is_from_outcome else no_rollouts_note,
    ]
    return " · ".join(part for part in parts if part)


MAX_NODES = 150
"""Maximum number of nodes shown of a tree."""
MAX_LEVELS = 60
"""Maximum depth of the nodes shown. Browsers limit the nesting of elements."""
MAX_TEXT = 300
"""Maximum characters shown of a node, and of an answer."""

TREE_KINDS = RIGHT, MISSED, NONE = (
    "the chosen solution is right",
    "a right solution was not chosen",
    "no solution is right",
)
"""Kinds of search trees, by the outcomes of their finished solutions."""
_OUTCOMES = ("right", "wrong")


def convert_trees_to_page_data(store: Store) -> list[dict[str, Any]]:
    """Return the first tree of each kind in `TREE_KINDS`; an empty list if the run is not a search.

    Raises:
        DamagedFile: a file of trees is missing or damaged.
    """
    by_kind: dict[str, StoredTree] = {}
    for tree in read_trees(store) if has_trees(store) else ():
        by_kind.setdefault(_classify_tree(tree), tree)
        if len(by_kind) == len(TREE_KINDS):
            break
    return [
        _convert_tree(tree_kind, by_kind[tree_kind])
        for tree_kind in TREE_KINDS
        if tree_kind in by_kind
    ]


def _classify_tree(tree: StoredTree) -> str:
    if tree.is_chosen_right:
        return RIGHT
    return MISSED if any(node.outcome == "right" for node in tree.results) else NONE


def _convert_tree(tree_kind: str, tree: StoredTree) -> dict[str, Any]:
    nodes = {node.id: node for node in tree.nodes}
    used_ids = {node_id for node in tree.results for node_id in _list_path_ids(node.id, nodes)}
    open_ids = set() if tree.chosen is None else set(_list_path_ids(tree.chosen, nodes))
    shown_ids = _choose_shown_nodes(tree, nodes)
    children: dict[str, list[StoredNode]] = defaultdict(list)
    for node in tree.nodes:
        if node.id in shown_ids:
            children[node.parent].append(node)

    def convert_node(node: StoredNode) -> dict[str, Any]:
        return {
            "text": _truncate_text(strip_step_text("".join(node.steps))[0] or "(nothing)"),
            "score": node.scores[-1] if node.scores else None,
            "count": node.count,
            "marks": list(_list_node_remarks(node, tree)),
            "is_used": node.id in used_ids,
            "is_open": node.id in open_ids,
            "below": [convert_node(child) for child in children[node.id]],
        }

    return {
        "kind": tree_kind,
        "problem_id": tree.problem_id,
        "problem": tree.problem,
        "answer": _truncate_text(tree.answer),
        "num_nodes": len(nodes),
        "num_left_out": len(nodes) - len(shown_ids),
        "num_results": len(tree.results),
        "num_sampled": tree.cost.num_sampled,
        "num_scored": tree.cost.num_scored,
        "nodes": [convert_node(node) for node in list(children[""])],
    }


def _list_path_ids(node_id: str, nodes: Mapping[str, StoredNode]) -> list[str]:
    """Return the ids of the nodes from the root to the node `node_id`."""
    node_ids = []
    while node_id:
        node_ids.append(node_id)
        node_id = nodes[node_id].parent
    return node_ids[::-1]


def _choose_shown_nodes(tree: StoredTree, nodes: Mapping[str, StoredNode]) -> set[str]:
    """Return the ids of the nodes to show, at most MAX_NODES.

    The path to the chosen result has priority, then the paths to the best solutions.
    """
    results = sorted(tree.results, key=lambda node: (node.id != tree.chosen, -(node.score or 0.0)))
    shown_ids: set[str] = set()
    for node in (*results, *tree.nodes):
        new_ids = [
            node_id
            for node_id in _list_path_ids(node.id, nodes)[:MAX_LEVELS]
            if node_id not in shown_ids
        ]
        if len(shown_ids) + len(new_ids) <= MAX_NODES:
            shown_ids.update(new_ids)
    return shown_ids


def _list_node_remarks(node: StoredNode, tree: StoredTree) -> Iterator[Mark]:
    """Yield the colour and the words of each remark on a node, such as that it was chosen."""
    if node.weight is not None:
        outcome = node.outcome if node.outcome in _OUTCOMES else ""
        answer = _truncate_text(node.prediction or "no answer")
        yield outcome, f"{node.outcome}: {answer}, weight {node.weight:.3g}"
    elif node.is_finished:
        yield "", "finished, but without a vote"
    if node.is_cut:
        yield "", "truncated at the context limit"
    if node.id == tree.chosen:
        yield "differs", "chosen"


def _truncate_text(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
