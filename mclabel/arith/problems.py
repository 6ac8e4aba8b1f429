"""Generated multi-step word problems whose every step can be checked exactly.

A problem is a short story about named people and things, built together with a hidden
program: a list of nodes `left op right = value`, each carrying the sentence (the *claim*)
that states it. The reference solution writes the nodes that the question needs, one a
line, and boxes the last value. Because the program is known, the truth of every step of
any sampled solution is known too (`mclabel.arith.verify`).

Design choices, all made so that a language model of about a million parameters can learn
the domain on two CPU cores and still err in interesting ways:

- Every quantity is an integer in [1, 199].
- Families are stories with their own events. Two are kept out of training: `gifts` mixes
  the events of two training families, `riddles` states comparisons in reverse order.
- About one problem in ten ends in a whole-number quotient between 1 and 5 ("how many full
  trays?"). There a wrong step often leads to the right answer, as with multiple choice.
- A problem belongs to train, validation or test by the hash of its text, so the splits
  are disjoint whatever the seeds.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from mclabel.records import Problem

Split = Literal["train", "validation", "test"]
Operation = Literal["+", "-", "*", "/", "//"]

MAX_VALUE = 199
MIN_STEPS, MAX_STEPS = 3, 8
SMALL_ANSWER_RATE = 0.1
MAX_SMALL_ANSWER = 5

# fmt: off
PEOPLE = (
    "Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gwen", "Hugo", "Iris", "Jon",
    "Kira", "Leo", "Mia", "Nora", "Omar", "Pia", "Raj", "Sara", "Tom", "Zoe",
)
THINGS = (
    "apples", "beads", "books", "cards", "coins", "cups", "eggs", "kites", "lamps",
    "marbles", "pens", "pies", "plums", "ropes", "shells", "stamps", "toys",
)
# fmt: on
CONTAINERS = ("bags", "boxes", "crates", "baskets")
TRAYS = ("trays", "racks")
PARTS = {2: "half", 3: "a third", 4: "a quarter", 5: "a fifth"}


@dataclass(frozen=True, kw_only=True)
class Node:
    """One derived quantity of a problem's hidden program: `left op right = value`."""

    op: Operation
    """`/` divides exactly, `//` is the whole-number quotient."""
    left: int
    right: int
    value: int
    claim: str
    """The step's text with `{}` in place of the equation, without the line end."""
    needs: tuple[int, ...]
    """Indices of the nodes whose values are operands; the other operands are facts."""
    event: str
    """The kind of event told, such as `give` or `fewer` (misconceptions go by it)."""

    def text(self, equation: str | None = None) -> str:
        """The step that states this node, with another equation if one is given."""
        return self.claim.replace("{}", equation or self.equation)

    @property
    def equation(self) -> str:
        return f"{self.left} {self.op} {self.right} = {self.value}"


@dataclass(frozen=True, kw_only=True)
class Program:
    """The hidden truth of a problem: every derivable quantity and the one asked for."""

    nodes: tuple[Node, ...]
    target: int
    """Index of the node whose value is the answer."""

    @property
    def answer(self) -> int:
        return self.nodes[self.target].value

    def needed(self) -> list[int]:
        """Indices of the nodes that the target rests on, itself included, in story order."""
        return sorted(_ancestors(self.nodes, self.target))

    def to_json(self) -> str:
        return json.dumps(
            {"nodes": [asdict(n) for n in self.nodes], "target": self.target},
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> Program:
        raw = json.loads(text)
        nodes = tuple(Node(**{**n, "needs": tuple(n["needs"])}) for n in raw["nodes"])
        return cls(nodes=nodes, target=raw["target"])


def reference_solution(program: Program) -> str:
    """The worked solution: one step a line, the answer boxed on the last line."""
    lines = [program.nodes[i].text() for i in program.needed()]
    return "\n".join([*lines, answer_line(program.answer)])


def answer_line(value: int) -> str:
    return f"The answer is \\boxed{{{value}}}."


def generate(
    count: int,
    *,
    seed: int,
    split: Split,
    families: Sequence[str] | None = None,
) -> list[Problem]:
    """`count` distinct problems of a split.

    Args:
        count: how many.
        seed: problems are a function of (seed, split, families) alone.
        split: decided by a hash of each problem's text: the three never share a problem.
        families: drawn from uniformly; by default the families that training uses.

    Returns:
        Problems whose `meta` holds `family`, `answer_type` ("integer" or "small"),
        `num_steps` and `program` (JSON, see `Program.from_json`).

    Raises:
        ValueError: an unknown family, or one kept out of training asked for in `train`.
    """
    chosen = tuple(families or TRAIN_FAMILIES)
    if unknown := [f for f in chosen if f not in FAMILIES]:
        raise ValueError(f"families={unknown}: must be among {sorted(FAMILIES)}")
    if split == "train" and (held := [f for f in chosen if f in HELD_OUT_FAMILIES]):
        raise ValueError(f"families={held}: kept out of training; use split='test'")
    problems: list[Problem] = []
    seen: set[str] = set()
    for problem in _stream(random.Random(f"arith:{seed}:{split}:{chosen}"), chosen):
        if len(problems) == count:
            break
        if split_of(problem.text) == split and problem.text not in seen:
            seen.add(problem.text)
            problems.append(problem)
    return problems


def split_of(text: str) -> Split:
    """The split a problem text belongs to: 80% train, 10% validation, 10% test."""
    bucket = hashlib.sha256(text.encode()).digest()[0] % 10
    return "test" if bucket == 0 else "validation" if bucket == 1 else "train"


def _stream(rng: random.Random, families: Sequence[str]) -> Iterator[Problem]:
    while True:
        family = rng.choice(families)
        num_steps = rng.randint(MIN_STEPS, MAX_STEPS)
        small = rng.random() < SMALL_ANSWER_RATE
        story = None
        while story is None:
            story = _draw(rng, family, num_steps, small)
        yield story.problem(family, "small" if small else "integer", num_steps)


def _draw(rng: random.Random, family: str, num_steps: int, small: bool) -> _Story | None:
    """One attempt at a story whose answer rests on exactly `num_steps` nodes."""
    story = _Story(rng)
    try:
        FAMILIES[family](story, num_steps - small)
        if small:
            _ask_full_trays(story)
    except _Infeasible:
        return None
    return story if story.depth() == num_steps else None


class _Infeasible(Exception):
    """This draw leads out of the range of quantities; draw again."""


@dataclass(frozen=True)
class _Quantity:
    value: int
    node: int | None = None  # None: a fact stated by the problem


class _Story:
    """A problem under construction: its sentences, its program and what is asked."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.sentences: list[str] = []
        self.nodes: list[Node] = []
        self.people = rng.sample(PEOPLE, 14)
        self.thing, self.other_thing = rng.sample(THINGS, 2)
        self.who = self.new_person()
        self.focus = _Quantity(0)
        self.holding = "has {} " + self.thing
        self.question = ""
        self.event = "start"

    def new_person(self) -> str:
        return self.people.pop()

    def number(self, low: int, high: int) -> int:
        if low > high:
            raise _Infeasible
        return self.rng.randint(low, high)

    def factor(self, value: int, *, high: int = 9) -> int:
        """A multiplier that keeps `value` in range."""
        return self.number(2, min(high, MAX_VALUE // value))

    def divisor(self, value: int, *, low: int = 2, high: int = 9) -> int:
        choices = [d for d in range(low, high + 1) if value % d == 0 and value > d]
        if not choices:
            raise _Infeasible
        return self.rng.choice(choices)

    def say(self, *variants: str) -> None:
        self.sentences.append(self.rng.choice(variants))

    def fact(self, value: int) -> _Quantity:
        return _Quantity(value)

    def derive(self, left: _Quantity, op: Operation, right: _Quantity, claim: str) -> _Quantity:
        a, b = left.value, right.value
        value = {"+": a + b, "-": a - b, "*": a * b}.get(op)
        if value is None:
            if b == 0 or (op == "/" and a % b):
                raise _Infeasible
            value = a // b
        if not 1 <= value <= MAX_VALUE:
            raise _Infeasible
        needs = tuple(q.node for q in (left, right) if q.node is not None)
        self.nodes.append(
            Node(op=op, left=a, right=b, value=value, claim=claim, needs=needs, event=self.event)
        )
        return _Quantity(value, len(self.nodes) - 1)

    def hold(self, left: _Quantity, op: Operation, right: _Quantity) -> None:
        """Derive the new amount that the person in focus holds."""
        self.focus = self.derive(left, op, right, f"{self.who} {self.holding}.")

    def depth(self) -> int:
        return 0 if self.focus.node is None else len(_ancestors(self.nodes, self.focus.node))

    def problem(self, family: str, answer_type: str, num_steps: int) -> Problem:
        assert self.focus.node is not None
        program = Program(nodes=tuple(self.nodes), target=self.focus.node)
        text = " ".join([*self.sentences, self.question])
        return Problem(
            id="arith-" + hashlib.sha256(text.encode()).hexdigest()[:16],
            text=text,
            answer=str(program.answer),
            meta={
                "family": family,
                "answer_type": answer_type,
                "num_steps": str(num_steps),
                "program": program.to_json(),
            },
        )


def _ancestors(nodes: Sequence[Node], target: int) -> set[int]:
    found, queue = {target}, [target]
    while queue:
        fresh = set(nodes[queue.pop()].needs) - found
        found |= fresh
        queue.extend(fresh)
    return found


def _tell(story: _Story, num_steps: int, events: Sequence[Callable[[_Story], None]]) -> None:
    """Let events happen until the quantity in focus rests on `num_steps` nodes."""
    while story.depth() < num_steps:
        if story.rng.random() < 0.25:
            _distract(story)
        event = story.rng.choice(events)
        story.event = event.__name__.strip("_")
        event(story)


def _distract(story: _Story) -> None:
    """A true fact that the question does not need, often about the same thing."""
    thing = story.thing if story.rng.random() < 0.6 else story.other_thing
    who, n = story.new_person() if len(story.people) > 3 else story.people[0], story.number(2, 60)
    story.say(f"{who} has {n} {thing}.", f"{who} buys {n} {thing}.")


# Trading: things change hands.


def _trading(story: _Story, num_steps: int) -> None:
    _start_holding(story)
    _tell(story, num_steps, TRADING_EVENTS)
    story.question = f"How many {story.thing} does {story.who} have now?"


def _start_holding(story: _Story) -> None:
    n = story.number(12, 120)
    story.say(f"{story.who} has {n} {story.thing}.", f"{story.who} starts with {n} {story.thing}.")
    story.focus = story.fact(n)


def _buy(story: _Story) -> None:
    n = story.number(2, min(90, MAX_VALUE - story.focus.value))
    story.say(f"{story.who} buys {n} {story.thing}.", f"{story.who} finds {n} more {story.thing}.")
    story.hold(story.focus, "+", story.fact(n))


def _sell(story: _Story) -> None:
    n = story.number(2, min(90, story.focus.value - 2))
    story.say(f"{story.who} sells {n} {story.thing}.", f"{story.who} loses {n} {story.thing}.")
    story.hold(story.focus, "-", story.fact(n))


def _receive(story: _Story) -> None:
    n = story.number(2, min(60, MAX_VALUE - story.focus.value))
    giver = story.rng.choice(story.people)
    story.say(f"{giver} gives {n} {story.thing} to {story.who}.")
    story.hold(story.focus, "+", story.fact(n))


def _give(story: _Story) -> None:
    n = story.number(2, min(60, story.focus.value - 2))
    taker = story.rng.choice(story.people)
    story.say(f"{story.who} gives {n} {story.thing} to {taker}.")
    story.hold(story.focus, "-", story.fact(n))


def _sell_half(story: _Story) -> None:
    story.say(
        f"{story.who} sells half of the {story.thing}.",
        f"{story.who} loses half of the {story.thing}.",
    )
    story.hold(story.focus, "/", story.fact(2))


def _give_part(story: _Story) -> None:
    d = story.divisor(story.focus.value, low=3, high=5)
    story.say(f"{story.who} gives away {PARTS[d]} of the {story.thing}.")
    claim = f"{story.who} gives away {{}} {story.thing}."
    part = story.derive(story.focus, "/", story.fact(d), claim)
    story.hold(story.focus, "-", part)


def _pass_on_half(story: _Story) -> None:
    if len(story.people) < 4:
        raise _Infeasible
    taker, n = story.new_person(), story.number(2, 60)
    story.say(f"{taker} has {n} {story.thing} and gets half of the {story.thing} of {story.who}.")
    claim = f"{story.who} gives {{}} {story.thing}."
    part = story.derive(story.focus, "/", story.fact(2), claim)
    story.who = taker
    story.hold(story.fact(n), "+", part)


TRADING_EVENTS = (_buy, _sell, _receive, _give, _sell_half, _give_part, _pass_on_half)


# Comparing: each person's amount is told by that of others.


def _comparing(story: _Story, num_steps: int) -> None:
    _start_holding(story)
    known = [(story.who, story.focus)]
    while story.depth() < num_steps:
        if story.rng.random() < 0.2:
            _distract(story)
        _compare(story, known)
    story.question = f"How many {story.thing} does {story.who} have?"


def _riddles(story: _Story, num_steps: int) -> None:
    """Comparisons told in reverse: what is asked first, what is given last."""
    _comparing(story, num_steps)
    story.sentences.reverse()


def _compare(story: _Story, known: list[tuple[str, _Quantity]] | None = None) -> None:
    if len(story.people) < 3:
        raise _Infeasible
    known = known if known is not None else [(story.who, story.focus)]
    before, amount = known[-1]
    who, thing, value = story.new_person(), story.thing, amount.value
    story.who = who
    kinds = ["times", "more", "fewer", "part"]
    if len(known) > 1:
        kinds += ["together", "above"]
    kind = story.event = story.rng.choice(kinds)
    if kind == "times":
        k = story.factor(value, high=6)
        story.say(f"{who} has {k} times as many {thing} as {before}.")
        story.hold(story.fact(k), "*", amount)
    elif kind == "more":
        n = story.number(2, min(90, MAX_VALUE - value))
        story.say(f"{who} has {n} more {thing} than {before}.")
        story.hold(amount, "+", story.fact(n))
    elif kind == "fewer":
        n = story.number(2, min(90, value - 2))
        story.say(f"{who} has {n} fewer {thing} than {before}.")
        story.hold(amount, "-", story.fact(n))
    elif kind == "part":
        d = story.divisor(value, high=5)
        story.say(f"{who} has {PARTS[d]} as many {thing} as {before}.")
        story.hold(amount, "/", story.fact(d))
    else:
        other, theirs = story.rng.choice(known[:-1])
        if kind == "together":
            story.say(f"{who} has as many {thing} as {before} and {other} together.")
            story.hold(amount, "+", theirs)
        else:
            (big, more), (low, less) = (before, amount), (other, theirs)
            if less.value > more.value:
                (big, more), (low, less) = (low, less), (big, more)
            if more.value - less.value < 2:
                raise _Infeasible
            story.say(f"{who} has as many {thing} as {big} has more than {low}.")
            story.hold(more, "-", less)
    known.append((who, story.focus))


# Packing: containers times contents, equal piles.


def _packing(story: _Story, num_steps: int) -> None:
    containers = story.rng.choice(CONTAINERS)
    k, n = story.number(2, 9), story.number(3, 40)
    story.say(f"{story.who} fills {k} {containers} with {n} {story.thing} each.")
    claim = f"The {containers} hold {{}} {story.thing}."
    story.focus = story.derive(story.fact(k), "*", story.fact(n), claim)
    _tell(story, num_steps, PACKING_EVENTS)
    story.question = f"How many {story.thing} does {story.who} have in the end?"


def _add_loose(story: _Story) -> None:
    n = story.number(2, min(90, MAX_VALUE - story.focus.value))
    story.say(f"{story.who} adds {n} loose {story.thing}.")
    story.hold(story.focus, "+", story.fact(n))


def _take_out(story: _Story) -> None:
    n = story.number(2, min(90, story.focus.value - 2))
    story.say(f"{story.who} takes out {n} bad {story.thing}.")
    story.hold(story.focus, "-", story.fact(n))


def _add_containers(story: _Story) -> None:
    containers = story.rng.choice(CONTAINERS)
    room = MAX_VALUE - story.focus.value
    k = story.number(2, 9)
    n = story.number(2, min(30, room // k))
    story.say(f"{story.who} adds {k} more {containers} of {n} {story.thing} each.")
    more = story.derive(story.fact(k), "*", story.fact(n), f"{story.who} adds {{}} {story.thing}.")
    story.hold(story.focus, "+", more)


def _keep_pile(story: _Story) -> None:
    d = story.divisor(story.focus.value)
    story.say(f"{story.who} makes {d} equal piles of the {story.thing} and keeps one pile.")
    story.hold(story.focus, "/", story.fact(d))


PACKING_EVENTS = (_add_loose, _take_out, _add_containers, _keep_pile)


# Shopping: money comes and goes.


def _shopping(story: _Story, num_steps: int) -> None:
    n = story.number(40, 180)
    story.holding = "has {} dollars"
    story.say(f"{story.who} has {n} dollars.", f"{story.who} starts with {n} dollars.")
    story.focus = story.fact(n)
    _tell(story, num_steps, SHOPPING_EVENTS)
    story.question = f"How many dollars does {story.who} have left?"


def _buy_several(story: _Story) -> None:
    thing = story.rng.choice(THINGS)
    k = story.number(2, 9)
    price = story.number(2, min(40, (story.focus.value - 2) // k))
    story.say(f"{story.who} buys {k} {thing} for {price} dollars each.")
    cost = story.derive(story.fact(k), "*", story.fact(price), f"The {thing} cost {{}} dollars.")
    story.hold(story.focus, "-", cost)


def _pay(story: _Story) -> None:
    n = story.number(2, min(90, story.focus.value - 2))
    story.say(f"{story.who} pays {n} dollars for a ticket.", f"{story.who} loses {n} dollars.")
    story.hold(story.focus, "-", story.fact(n))


def _earn(story: _Story) -> None:
    k = story.number(2, 9)
    n = story.number(2, min(30, (MAX_VALUE - story.focus.value) // k))
    story.say(f"{story.who} earns {n} dollars a day for {k} days.")
    wage = story.derive(story.fact(n), "*", story.fact(k), f"{story.who} earns {{}} dollars.")
    story.hold(story.focus, "+", wage)


def _spend_half(story: _Story) -> None:
    story.say(f"{story.who} spends half of the money.")
    story.hold(story.focus, "/", story.fact(2))


def _spend_part(story: _Story) -> None:
    d = story.divisor(story.focus.value, low=3, high=5)
    story.say(f"{story.who} spends {PARTS[d]} of the money.")
    part = story.derive(story.focus, "/", story.fact(d), f"{story.who} spends {{}} dollars.")
    story.hold(story.focus, "-", part)


SHOPPING_EVENTS = (_buy_several, _pay, _earn, _spend_half, _spend_part)


# Travelling: kilometres from home.


def _travelling(story: _Story, num_steps: int) -> None:
    story.holding = "is {} km from home"
    k, n = story.number(2, 9), story.number(3, 40)
    story.say(f"{story.who} walks {n} km a day for {k} days.")
    story.focus = story.derive(story.fact(n), "*", story.fact(k), f"{story.who} walks {{}} km.")
    _tell(story, num_steps, TRAVELLING_EVENTS)
    story.question = f"How many km from home is {story.who}?"


def _ride_on(story: _Story) -> None:
    n = story.number(2, min(90, MAX_VALUE - story.focus.value))
    story.say(f"{story.who} rides {n} km more.", f"{story.who} goes on for {n} km.")
    story.hold(story.focus, "+", story.fact(n))


def _turn_back(story: _Story) -> None:
    n = story.number(2, min(90, story.focus.value - 2))
    story.say(f"{story.who} goes {n} km back.", f"{story.who} turns and rides {n} km back.")
    story.hold(story.focus, "-", story.fact(n))


def _drive(story: _Story) -> None:
    k = story.number(2, 9)
    n = story.number(2, min(40, (MAX_VALUE - story.focus.value) // k))
    story.say(f"{story.who} drives on for {k} hours at {n} km an hour.")
    way = story.derive(story.fact(k), "*", story.fact(n), f"{story.who} drives {{}} km.")
    story.hold(story.focus, "+", way)


def _halfway_home(story: _Story) -> None:
    story.say(f"{story.who} goes half of the way back.")
    story.hold(story.focus, "/", story.fact(2))


def _times_as_far(story: _Story) -> None:
    if len(story.people) < 4:
        raise _Infeasible
    k, before = story.factor(story.focus.value, high=5), story.who
    story.who = story.new_person()
    story.say(f"{story.who} is {k} times as far from home as {before}.")
    story.hold(story.fact(k), "*", story.focus)


TRAVELLING_EVENTS = (_ride_on, _turn_back, _drive, _halfway_home, _times_as_far)


# Making: a shop produces, breaks, stocks.


def _making(story: _Story, num_steps: int) -> None:
    k, n = story.number(2, 9), story.number(3, 40)
    story.say(f"{story.who} makes {n} {story.thing} an hour for {k} hours.")
    claim = f"{story.who} makes {{}} {story.thing}."
    story.focus = story.derive(story.fact(n), "*", story.fact(k), claim)
    _tell(story, num_steps, MAKING_EVENTS)
    story.question = f"How many {story.thing} are in the shop of {story.who}?"


def _stock(story: _Story) -> None:
    n = story.number(2, min(90, MAX_VALUE - story.focus.value))
    story.say(f"The shop gets {n} more {story.thing}.", f"Then {n} more {story.thing} come.")
    story.focus = story.derive(story.focus, "+", story.fact(n), f"The shop has {{}} {story.thing}.")


def _customers(story: _Story) -> None:
    k = story.number(2, 9)
    n = story.number(2, min(30, (story.focus.value - 2) // k))
    story.say(f"{k} people buy {n} {story.thing} each.")
    sold = story.derive(story.fact(k), "*", story.fact(n), f"The people buy {{}} {story.thing}.")
    story.focus = story.derive(story.focus, "-", sold, f"The shop has {{}} {story.thing}.")


def _break_part(story: _Story) -> None:
    d = story.divisor(story.focus.value, low=3, high=5)
    story.say(f"Then {PARTS[d]} of the {story.thing} break.")
    broken = story.derive(story.focus, "/", story.fact(d), f"In all {{}} {story.thing} break.")
    story.focus = story.derive(story.focus, "-", broken, f"The shop has {{}} {story.thing}.")


def _copy_stock(story: _Story) -> None:
    k = story.factor(story.focus.value, high=4)
    story.say(f"Then the shop makes the number of {story.thing} {k} times as large.")
    story.focus = story.derive(story.fact(k), "*", story.focus, f"The shop has {{}} {story.thing}.")


def _sell_half_stock(story: _Story) -> None:
    story.say(f"Then half of the {story.thing} are sold.")
    story.focus = story.derive(story.focus, "/", story.fact(2), f"The shop has {{}} {story.thing}.")


MAKING_EVENTS = (_stock, _customers, _break_part, _copy_stock, _sell_half_stock)


# Gifts: trading and comparing in one story (kept out of training).


def _gifts(story: _Story, num_steps: int) -> None:
    _start_holding(story)
    _tell(story, num_steps, (*TRADING_EVENTS, *[_compare] * 4))
    story.question = f"How many {story.thing} does {story.who} have now?"


def _ask_full_trays(story: _Story) -> None:
    """End in a whole-number quotient between 1 and 5, which wrong amounts often share."""
    story.event = "fill_trays"
    trays = story.rng.choice(TRAYS)
    quotient = story.number(1, MAX_SMALL_ANSWER)
    value = story.focus.value
    room = story.number(max(2, value // (quotient + 1) + 1), value // quotient)
    unit = story.holding.split("{} ")[1].split()[0]
    story.say(f"It takes {room} {unit} to fill one of the {trays}.")
    story.focus = story.derive(story.focus, "//", story.fact(room), f"This fills {{}} {trays}.")
    story.question = f"How many {trays} can be filled?"


FAMILIES: dict[str, Callable[[_Story, int], None]] = {
    "trading": _trading,
    "comparing": _comparing,
    "packing": _packing,
    "shopping": _shopping,
    "travelling": _travelling,
    "making": _making,
    "gifts": _gifts,
    "riddles": _riddles,
}
HELD_OUT_FAMILIES = ("gifts", "riddles")
TRAIN_FAMILIES = tuple(f for f in FAMILIES if f not in HELD_OUT_FAMILIES)
