"""Compares lists, sets, tuples and alternatives: in order or not, item by item."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items
from dataclasses import replace

from mclabel.answers.comparison.names import are_truth_values, by_name, has_labels, is_assigned
from mclabel.answers.rules import GradeRules
from mclabel.answers.values.forms import Form, Sequence

Same = Callable[[Form, Form], bool | None]


def same_sequences(answer: Sequence, gold: Sequence, rules: GradeRules, same: Same) -> bool | None:
    """Whether two collections hold the same, in order where their brackets or names say so.

    Beside values without names, named ones count in the order of their names. If only the order in
    which they are written fits, nothing is decided.
    """
    if answer.kind == "set" and gold.kind != "set" and is_assigned(answer):
        answer = replace(answer, kind="list")
    by = None if has_labels(gold) else by_name(answer)
    if by is not None:
        verdict = _same_items(by, gold, rules, same)
        return None if not verdict and _same_items(answer, gold, rules, same) else verdict
    by = None if has_labels(answer) else by_name(gold)
    if by is not None:
        verdict = _same_items(answer, by, rules, same)
        return None if not verdict and _same_items(answer, gold, rules, same) else verdict
    return _same_items(answer, gold, rules, same)


def _same_items(answer: Sequence, gold: Sequence, rules: GradeRules, same: Same) -> bool | None:
    kinds = {answer.kind, gold.kind}
    if "tuple" in kinds and "bracket" in kinds and len(gold.items) == 2:
        return False
    if "set" in kinds and kinds & {"tuple", "bracket"}:
        return False
    loose = {"list", "alternatives"}
    ordered = bool(kinds & {"tuple", "bracket"}) or (rules.ordered_lists and kinds <= loose)
    if kinds == {"set"} and rules.ordered_sets:
        ordered = True
    told = kinds <= loose and _order_is_told(answer, gold, rules)
    if told and not has_labels(gold) and has_labels(answer) and not are_truth_values(gold):
        ordered_verdict = all_same(map(same, spread(answer), spread(gold)))
        if ordered_verdict or len(answer.items) != len(gold.items):
            return ordered_verdict
        return None if _matching(spread(answer), spread(gold), same) else False
    ordered = ordered or told
    if kinds & loose and kinds - loose and ordered and not rules.brackets_optional:
        return False
    ours, theirs = spread(answer), spread(gold)
    if kinds == {"set"}:
        ours, theirs = _distinct(ours, same), _distinct(theirs, same)
    if len(ours) > len(theirs) and not ordered:
        ours = _distinct(ours, same)
    if len(ours) != len(theirs):
        return False
    if ordered:
        return all_same(map(same, ours, theirs))
    return _matching(ours, theirs, same)


def _order_is_told(answer: Sequence, gold: Sequence, rules: GradeRules) -> bool:
    """Whether names, truth values or dots at the end say that the order of a list counts."""
    if answer.ordered or gold.ordered:
        return True
    if not rules.ordered_assignments:
        return False
    for one, other in ((answer, gold), (gold, answer)):
        if is_assigned(one) and not has_labels(other):
            return True
    return are_truth_values(gold)


def _distinct(items: Items[Form], same: Same) -> list[Form]:
    kept: list[Form] = []
    for item in items:
        if not any(same(item, other) for other in kept):
            kept.append(item)
    return kept


def _matching(answer: Items[Form], gold: Items[Form], same: Same) -> bool | None:
    """Whether every gold item has an answer item of its own."""
    left, unsure = list(answer), False
    open_golds = []
    for item in gold:
        found = next((x for x in left if same(x, item)), None)
        if found is None:
            open_golds.append(item)
        else:
            left.remove(found)
    for item in open_golds:
        if not any(same(x, item) is None for x in left):
            return False
        unsure = True
    return None if unsure else True


def spread(sequence: Form) -> list[Form]:
    """Items, with those that are several answers themselves (1, ±2) spread out."""
    assert isinstance(sequence, Sequence)
    items: list[Form] = []
    for item in sequence.items:
        if isinstance(item, Sequence) and item.kind in ("list", "alternatives"):
            items.extend(item.items)
        else:
            items.append(item)
    return items


def all_same(verdicts: Iterable[bool | None]) -> bool | None:
    """Whether all are; None if one is not decided and none is wrong."""
    unsure = False
    for verdict in verdicts:
        if verdict is False:
            return False
        unsure |= verdict is None
    return None if unsure else True
