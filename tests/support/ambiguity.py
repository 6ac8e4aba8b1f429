"""Proof that a backtracking regex matcher takes linear time, or a word that makes it slow.

A backtracking matcher explores paths through the pattern's automaton. The number of paths for a
prefix of the text is bounded, and so the steps are linear in the length, unless one word leads from
a state p back to p, from p to another state q, and from q to q (Weber and Seidl 1991; Weideman et
al. 2016). Then every repetition of that word adds a path. A search is modelled as the automaton
with a loop before it. A word that is found may be a false alarm: priorities prune paths, and only
one character on each side of a place is examined.

The character after a possessive repetition of single characters is one that the repetition cannot
read. Other possessive repetitions are modelled as greedy ones. A look-around of one character, an
anchor or a boundary is modelled exactly. Any other look-ahead is explored as one more path. A
repetition of up to `MAX_COUNT` times is a constant factor; a longer repetition counts as unbounded.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from re import _constants as names  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from tests.support.attacks import alphabet_of
from tests.support.regex_nodes import CHARACTERS, REPEATS, fits

MAX_COPIES = 10
"""Largest number of copies that represent a counted repetition."""
MAX_COUNT = 100
"""Largest count of a repetition that is taken as a constant factor."""
_START = -1
"""Class of the place before the text's first character."""

Guard = Callable[[int, int], bool]
"""Function that returns True if an empty edge may be taken between characters of two classes."""
Walks = dict[int, Counter[int]]
"""States after a read character, by its class, each with the number of ways to the state."""
Moves = Callable[[tuple[int, ...], int], Iterator[tuple[int, tuple[int, ...]]]]
"""Function from a product state and a context to the classes that can be read, each with the next
product state.
"""


@dataclass
class _Automaton:
    """States by number.

    `reads` edges read a character of some classes; `empty` edges read nothing.
    """

    reads: list[list[tuple[frozenset[int], int]]] = field(default_factory=list)
    empty: list[list[tuple[Guard | None, int]]] = field(default_factory=list)
    always: list[list[int]] = field(default_factory=list)
    """Ends of the empty edges that can finally be taken whatever follows."""

    def state(self) -> int:
        self.reads.append([])
        self.empty.append([])
        self.always.append([])
        return len(self.reads) - 1


class Analysis:
    """The automaton of a pattern over the classes of characters that its sets distinguish."""

    def __init__(self, pattern: re.Pattern[str], *, search: bool) -> None:
        self.flags = pattern.flags
        self.tree = list(parser.parse(pattern.pattern, pattern.flags))
        self.letters = alphabet_of(pattern)
        self.all = frozenset(range(len(self.letters)))
        self.graph = _Automaton()
        self.start = self.graph.state()
        self.search = search
        if search:
            self.graph.reads[self.start].append((self.all, self.start))
        self.groups: dict[int, Any] = {}
        end = self._add_sequence(self.tree, self.start)
        self.matched = {
            state for state in range(len(self.graph.reads)) if end in self._at_last(state)
        }
        self.context = self._contexts()
        self._walked: dict[tuple[int, int], Walks] = {}
        self._reach: dict[int, set[int]] = {}

    def stumbling_word(self) -> str | None:
        """Return a word whose repetition adds paths; None if there is no such word."""
        circles = self._find_cycles()
        for circle in circles:
            for p in sorted(circle):
                word = self._two_ways_round(p, circle)
                if word is not None:
                    return word
                for other_circle in circles:
                    for q in sorted(other_circle - {p}):
                        word = self._word(p, q, circle, other_circle)
                        if word is not None:
                            return word
        return None

    # Construction of the automaton.

    def _add_sequence(self, items: Sequence[Any], at: int) -> int:
        for op, value in items:
            at = self._add_node(op, value, at)
        return at

    def _add_node(self, op: Any, value: Any, at: int) -> int:
        graph = self.graph
        if op in CHARACTERS:
            end = graph.state()
            graph.reads[at].append((self._classes(op, value), end))
            return end
        if op in REPEATS:
            low, high, items = value
            return self._add_repetition(op, low, high, items, at)
        if op is names.BRANCH:
            end = graph.state()
            for items in value[1]:
                begin = graph.state()
                self._join(at, begin, None)
                self._join(self._add_sequence(items, begin), end, None)
            return end
        if op is names.SUBPATTERN:
            group, add, remove, items = value
            self.groups[group] = items
            before = self.flags
            self.flags = (self.flags | add) & ~remove
            end = self._add_sequence(items, at)
            self.flags = before
            return end
        if op is names.ATOMIC_GROUP:
            return self._add_sequence(value, at)
        if op in (names.ASSERT, names.ASSERT_NOT):
            direction, items = value
            return self._add_look_around(op is names.ASSERT, direction, items, at)
        if op is names.AT:
            return self._add_edge(at, self._make_anchor_guard(value))
        if op is names.GROUPREF:  # any text that the group's pattern matches
            return self._add_sequence(self.groups[value], at)
        raise NotImplementedError(op)

    def _add_edge(self, at: int, guard: Guard | None) -> int:
        end = self.graph.state()
        self._join(at, end, guard)
        return end

    def _join(self, at: int, end: int, guard: Guard | None, *, at_last: bool = False) -> None:
        self.graph.empty[at].append((guard, end))
        if guard is None or at_last:
            self.graph.always[at].append(end)

    def _at_last(self, state: int) -> set[int]:
        """Return the states that are reachable without reading a character."""
        return _closure(state, dict(enumerate(map(set, self.graph.always)))) | {state}

    def _add_repetition(self, op: Any, low: int, high: Any, items: Any, at: int) -> int:
        graph = self.graph
        for _ in range(min(low, MAX_COPIES)):
            at = self._add_sequence(items, at)
        end = graph.state()
        if int(high) <= MAX_COUNT:
            for _ in range(min(int(high), MAX_COPIES) - min(low, MAX_COPIES)):
                self._join(at, end, self._guard_after_possessive(op, items), at_last=True)
                at = self._add_sequence(items, at)
            self._join(at, end, None)
            return end
        head = self._add_edge(at, None)
        self._join(self._add_sequence(items, head), head, None)
        self._join(head, end, self._guard_after_possessive(op, items), at_last=True)
        return end

    def _guard_after_possessive(self, op: Any, items: Any) -> Guard | None:
        """Return the guard after a possessive repetition: the next character cannot extend it."""
        if op is not names.POSSESSIVE_REPEAT:
            return None
        taken = self._single_classes(items)
        return lambda _, following: following not in taken

    def _single_classes(self, items: Any) -> frozenset[int]:
        """Return the classes of characters each of which is always read as one full repetition."""
        listed = list(items)
        if len(listed) != 1:
            return frozenset()
        op, value = listed[0]
        if op in CHARACTERS:
            return self._classes(op, value)
        if op is names.SUBPATTERN:
            return self._single_classes(value[3])
        if op is names.BRANCH:
            return frozenset().union(*(self._single_classes(branch) for branch in value[1]))
        if op in REPEATS and value[0] <= 1:
            return self._single_classes(value[2])
        return frozenset()

    def _add_look_around(self, wanted: bool, direction: int, items: Any, at: int) -> int:
        listed = list(items)
        if len(listed) == 1 and listed[0][0] in CHARACTERS:
            taken = self._classes(*listed[0])
            if direction < 0:
                return self._add_edge(at, lambda before, _: (before in taken) is wanted)
            return self._add_edge(at, lambda _, following: (following in taken) is wanted)
        if len(listed) == 1 and listed[0][0] is names.BRANCH and direction < 0 and not wanted:
            for branch in listed[0][1][1]:
                at = self._add_look_around(False, direction, branch, at)
            return at
        if direction > 0:
            self._add_sequence(listed, self._add_edge(at, None))
        return self._add_edge(at, None)

    def _make_anchor_guard(self, where: Any) -> Guard | None:
        lines = bool(self.flags & re.MULTILINE)
        ends = {i for i in self.all if self.letters[i] == "\n"}
        if where is names.AT_BEGINNING:
            return lambda before, _: before == _START or (lines and before in ends)
        if where is names.AT_BEGINNING_STRING:
            return lambda before, _: before == _START
        if where is names.AT_END:
            return lambda _, following: following in ends
        if where is names.AT_END_STRING:
            return lambda *_: False
        words = {i for i in self.all if self.letters[i].isalnum() or self.letters[i] == "_"}
        inside = where is names.AT_NON_BOUNDARY
        return lambda before, following: ((before in words) is (following in words)) is inside

    def _classes(self, op: Any, value: Any) -> frozenset[int]:
        fit = fits(op, value, self.flags)
        return frozenset(i for i in self.all if fit(self.letters[i]))

    # Paths of the automaton. The last read class belongs to every state, as all paths share it.

    def _contexts(self) -> dict[int, int]:
        """Return, for each last read class, the first class that all guards treat alike."""
        guards = [guard for edges in self.graph.empty for guard, _ in edges if guard is not None]
        first: dict[tuple[bool, ...], int] = {}
        contexts = {}
        for before in (_START, *sorted(self.all)):
            alike = tuple(guard(before, following) for guard in guards for following in self.all)
            contexts[before] = first.setdefault(alike, before)
        return contexts

    def _walk(self, state: int, context: int) -> Walks:
        """Return the states after reading one character, by its class if it can be read."""
        if (walks := self._walked.get((state, context))) is not None:
            return walks
        new_walks: Walks = {}

        def visit(at: int, seen: tuple[int, ...], open_to: frozenset[int]) -> None:
            for classes, end in self.graph.reads[at]:
                for following in classes & open_to:
                    new_walks.setdefault(following, Counter())[end] += 1
            for guard, end in self.graph.empty[at]:
                passing = open_to
                if guard is not None:
                    passing = frozenset(
                        read_class for read_class in open_to if guard(context, read_class)
                    )
                if passing and seen.count(end) < 2:
                    # A body that may be empty can be repeated a second time.
                    visit(end, (*seen, end), passing)

        visit(state, (state,), self.all)
        self._walked[state, context] = new_walks
        return new_walks

    def _find_cycles(self) -> list[frozenset[int]]:
        """Return the sets of reachable states that lie on a common cycle."""
        after: dict[int, set[int]] = {}
        waiting = [self.start]
        while waiting:
            state = waiting.pop()
            if state in after:
                continue
            after[state] = {
                end
                for context in set(self.context.values())
                for ends in self._walk(state, context).values()
                for end in ends
            }
            waiting.extend(after[state])
        self._reach = {state: _closure(state, after) for state in after}
        circles = {
            frozenset(
                other_state
                for other_state in self._reach[state]
                if state in self._reach[other_state]
            )
            for state in after
            if state in self._reach[state]
        }
        return sorted(circles, key=min)

    def _word(
        self, p: int, q: int, around_p: frozenset[int], around_q: frozenset[int]
    ) -> str | None:
        """Return a word from p to p, from p to q and from q to q at once."""
        if q not in self._reach[p]:
            return None

        def moves(key: tuple[int, ...], context: int) -> Iterator[tuple[int, tuple[int, ...]]]:
            from_a, from_b, from_c = (self._walk(state, context) for state in key)
            for following in from_a.keys() & from_b.keys() & from_c.keys():
                for x in around_p & from_a[following].keys():
                    for z in around_q & from_c[following].keys():
                        if p == self.start and self.search and z in self.matched:
                            # the text so far is already a match, so it is not searched again
                            continue
                        for y in from_b[following]:
                            if q == y or q in self._reach[y]:
                                yield following, (x, y, z)

        return self._find_repeatable_word((p, p, q), (p, q, q), moves)

    def _two_ways_round(self, p: int, around: frozenset[int]) -> str | None:
        """Return a word that leads from p to p in two ways."""

        def moves(key: tuple[int, ...], context: int) -> Iterator[tuple[int, tuple[int, ...]]]:
            a, b, parted = key
            from_a, from_b = self._walk(a, context), self._walk(b, context)
            for following in from_a.keys() & from_b.keys():
                for x in around & from_a[following].keys():
                    for y in around & from_b[following].keys():
                        twice = a == b and from_a[following][x] > 1
                        yield following, (x, y, int(bool(parted) or x != y or twice))

        return self._find_repeatable_word((p, p, 0), (p, p, 1), moves)

    def _find_repeatable_word(
        self, begin: tuple[int, ...], goal: tuple[int, ...], moves: Moves
    ) -> str | None:
        """Return a repeatable word from one state of a product to another."""
        for last in sorted({self.context[last_read] for last_read in self.all}):
            words = {(begin, last): ""}  # the word repeats, so its own end comes before it
            waiting = deque(words)
            while waiting:
                key, before = waiting.popleft()
                for following, new in moves(key, before):
                    word = words[key, before] + self.letters[following]
                    context = self.context[following]
                    if new == goal and context == last:
                        return word
                    if (new, context) not in words:
                        words[new, context] = word
                        waiting.append((new, context))
        return None


def _closure(state: int, after: dict[int, set[int]]) -> set[int]:
    seen: set[int] = set()
    waiting = list(after[state])
    while waiting:
        reached = waiting.pop()
        if reached not in seen:
            seen.add(reached)
            waiting.extend(after[reached])
    return seen
