"""The stories that problems are made of: families, their events, and what they derive.

A story is told about named people and things. Every event says a sentence and derives the nodes
that follow from it; a story ends when the quantity in focus rests on as many nodes as wanted. Two
families are kept out of training: `gifts` mixes the events of two training families, `riddles`
states comparisons in reverse order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mclabel.domains.arith.program import MAX_VALUE, THINGS, Infeasible, Quantity, Story

MAX_SMALL_ANSWER = 5

CONTAINERS = ("bags", "boxes", "crates", "baskets")
TRAYS = ("trays", "racks")
PARTS = {2: "half", 3: "a third", 4: "a quarter", 5: "a fifth"}


def _tell(story: Story, num_steps: int, events: Sequence[Callable[[Story], None]]) -> None:
    """Let events happen until the quantity in focus rests on `num_steps` nodes."""
    while story.depth() < num_steps:
        if story.rng.random() < 0.25:
            _distract(story)
        event = story.rng.choice(events)
        story.event = event.__name__.strip("_")
        event(story)


def _distract(story: Story) -> None:
    """A true fact that the question does not need, often about the same thing."""
    thing = story.thing if story.rng.random() < 0.6 else story.other_thing
    who, n = story.new_person() if len(story.people) > 3 else story.people[0], story.number(2, 60)
    story.say(f"{who} has {n} {thing}.", f"{who} buys {n} {thing}.")


# Trading: things change hands.


def _trading(story: Story, num_steps: int) -> None:
    _start_holding(story)
    _tell(story, num_steps, TRADING_EVENTS)
    story.question = f"How many {story.thing} does {story.who} have now?"


def _start_holding(story: Story) -> None:
    n = story.number(12, 120)
    story.say(f"{story.who} has {n} {story.thing}.", f"{story.who} starts with {n} {story.thing}.")
    story.focus = story.fact(n)


def _buy(story: Story) -> None:
    n = story.number(2, min(90, MAX_VALUE - story.focus.value))
    story.say(f"{story.who} buys {n} {story.thing}.", f"{story.who} finds {n} more {story.thing}.")
    story.hold(story.focus, "+", story.fact(n))


def _sell(story: Story) -> None:
    n = story.number(2, min(90, story.focus.value - 2))
    story.say(f"{story.who} sells {n} {story.thing}.", f"{story.who} loses {n} {story.thing}.")
    story.hold(story.focus, "-", story.fact(n))


def _receive(story: Story) -> None:
    n = story.number(2, min(60, MAX_VALUE - story.focus.value))
    giver = story.rng.choice(story.people)
    story.say(f"{giver} gives {n} {story.thing} to {story.who}.")
    story.hold(story.focus, "+", story.fact(n))


def _give(story: Story) -> None:
    n = story.number(2, min(60, story.focus.value - 2))
    taker = story.rng.choice(story.people)
    story.say(f"{story.who} gives {n} {story.thing} to {taker}.")
    story.hold(story.focus, "-", story.fact(n))


def _sell_half(story: Story) -> None:
    story.say(
        f"{story.who} sells half of the {story.thing}.",
        f"{story.who} loses half of the {story.thing}.",
    )
    story.hold(story.focus, "/", story.fact(2))


def _give_part(story: Story) -> None:
    d = story.divisor(story.focus.value, low=3, high=5)
    story.say(f"{story.who} gives away {PARTS[d]} of the {story.thing}.")
    claim = f"{story.who} gives away {{}} {story.thing}."
    part = story.derive(story.focus, "/", story.fact(d), claim)
    story.hold(story.focus, "-", part)


def _pass_on_half(story: Story) -> None:
    if len(story.people) < 4:
        raise Infeasible
    taker, n = story.new_person(), story.number(2, 60)
    story.say(f"{taker} has {n} {story.thing} and gets half of the {story.thing} of {story.who}.")
    claim = f"{story.who} gives {{}} {story.thing}."
    part = story.derive(story.focus, "/", story.fact(2), claim)
    story.who = taker
    story.hold(story.fact(n), "+", part)


TRADING_EVENTS = (_buy, _sell, _receive, _give, _sell_half, _give_part, _pass_on_half)


# Comparing: each person's amount is told by that of others.


def _comparing(story: Story, num_steps: int) -> None:
    _start_holding(story)
    known = [(story.who, story.focus)]
    while story.depth() < num_steps:
        if story.rng.random() < 0.2:
            _distract(story)
        _compare(story, known)
    story.question = f"How many {story.thing} does {story.who} have?"


def _riddles(story: Story, num_steps: int) -> None:
    """Comparisons told in reverse: what is asked first, what is given last."""
    _comparing(story, num_steps)
    story.sentences.reverse()


def _compare(story: Story, known: list[tuple[str, Quantity]] | None = None) -> None:
    if len(story.people) < 3:
        raise Infeasible
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
                raise Infeasible
            story.say(f"{who} has as many {thing} as {big} has more than {low}.")
            story.hold(more, "-", less)
    known.append((who, story.focus))


# Packing: containers times contents, equal piles.


def _packing(story: Story, num_steps: int) -> None:
    containers = story.rng.choice(CONTAINERS)
    k, n = story.number(2, 9), story.number(3, 40)
    story.say(f"{story.who} fills {k} {containers} with {n} {story.thing} each.")
    claim = f"The {containers} hold {{}} {story.thing}."
    story.focus = story.derive(story.fact(k), "*", story.fact(n), claim)
    _tell(story, num_steps, PACKING_EVENTS)
    story.question = f"How many {story.thing} does {story.who} have in the end?"


def _add_loose(story: Story) -> None:
    n = story.number(2, min(90, MAX_VALUE - story.focus.value))
    story.say(f"{story.who} adds {n} loose {story.thing}.")
    story.hold(story.focus, "+", story.fact(n))


def _take_out(story: Story) -> None:
    n = story.number(2, min(90, story.focus.value - 2))
    story.say(f"{story.who} takes out {n} bad {story.thing}.")
    story.hold(story.focus, "-", story.fact(n))


def _add_containers(story: Story) -> None:
    containers = story.rng.choice(CONTAINERS)
    room = MAX_VALUE - story.focus.value
    k = story.number(2, 9)
    n = story.number(2, min(30, room // k))
    story.say(f"{story.who} adds {k} more {containers} of {n} {story.thing} each.")
    more = story.derive(story.fact(k), "*", story.fact(n), f"{story.who} adds {{}} {story.thing}.")
    story.hold(story.focus, "+", more)


def _keep_pile(story: Story) -> None:
    d = story.divisor(story.focus.value)
    story.say(f"{story.who} makes {d} equal piles of the {story.thing} and keeps one pile.")
    story.hold(story.focus, "/", story.fact(d))


PACKING_EVENTS = (_add_loose, _take_out, _add_containers, _keep_pile)


# Shopping: money comes and goes.


def _shopping(story: Story, num_steps: int) -> None:
    n = story.number(40, 180)
    story.holding = "has {} dollars"
    story.say(f"{story.who} has {n} dollars.", f"{story.who} starts with {n} dollars.")
    story.focus = story.fact(n)
    _tell(story, num_steps, SHOPPING_EVENTS)
    story.question = f"How many dollars does {story.who} have left?"


def _buy_several(story: Story) -> None:
    thing = story.rng.choice(THINGS)
    k = story.number(2, 9)
    price = story.number(2, min(40, (story.focus.value - 2) // k))
    story.say(f"{story.who} buys {k} {thing} for {price} dollars each.")
    cost = story.derive(story.fact(k), "*", story.fact(price), f"The {thing} cost {{}} dollars.")
    story.hold(story.focus, "-", cost)


def _pay(story: Story) -> None:
    n = story.number(2, min(90, story.focus.value - 2))
    story.say(f"{story.who} pays {n} dollars for a ticket.", f"{story.who} loses {n} dollars.")
    story.hold(story.focus, "-", story.fact(n))


def _earn(story: Story) -> None:
    k = story.number(2, 9)
    n = story.number(2, min(30, (MAX_VALUE - story.focus.value) // k))
    story.say(f"{story.who} earns {n} dollars a day for {k} days.")
    wage = story.derive(story.fact(n), "*", story.fact(k), f"{story.who} earns {{}} dollars.")
    story.hold(story.focus, "+", wage)


def _spend_half(story: Story) -> None:
    story.say(f"{story.who} spends half of the money.")
    story.hold(story.focus, "/", story.fact(2))


def _spend_part(story: Story) -> None:
    d = story.divisor(story.focus.value, low=3, high=5)
    story.say(f"{story.who} spends {PARTS[d]} of the money.")
    part = story.derive(story.focus, "/", story.fact(d), f"{story.who} spends {{}} dollars.")
    story.hold(story.focus, "-", part)


SHOPPING_EVENTS = (_buy_several, _pay, _earn, _spend_half, _spend_part)


# Travelling: kilometres from home.


def _travelling(story: Story, num_steps: int) -> None:
    story.holding = "is {} km from home"
    k, n = story.number(2, 9), story.number(3, 40)
    story.say(f"{story.who} walks {n} km a day for {k} days.")
    story.focus = story.derive(story.fact(n), "*", story.fact(k), f"{story.who} walks {{}} km.")
    _tell(story, num_steps, TRAVELLING_EVENTS)
    story.question = f"How many km from home is {story.who}?"


def _ride_on(story: Story) -> None:
    n = story.number(2, min(90, MAX_VALUE - story.focus.value))
    story.say(f"{story.who} rides {n} km more.", f"{story.who} goes on for {n} km.")
    story.hold(story.focus, "+", story.fact(n))


def _turn_back(story: Story) -> None:
    n = story.number(2, min(90, story.focus.value - 2))
    story.say(f"{story.who} goes {n} km back.", f"{story.who} turns and rides {n} km back.")
    story.hold(story.focus, "-", story.fact(n))


def _drive(story: Story) -> None:
    k = story.number(2, 9)
    n = story.number(2, min(40, (MAX_VALUE - story.focus.value) // k))
    story.say(f"{story.who} drives on for {k} hours at {n} km an hour.")
    way = story.derive(story.fact(k), "*", story.fact(n), f"{story.who} drives {{}} km.")
    story.hold(story.focus, "+", way)


def _halfway_home(story: Story) -> None:
    story.say(f"{story.who} goes half of the way back.")
    story.hold(story.focus, "/", story.fact(2))


def _times_as_far(story: Story) -> None:
    if len(story.people) < 4:
        raise Infeasible
    k, before = story.factor(story.focus.value, high=5), story.who
    story.who = story.new_person()
    story.say(f"{story.who} is {k} times as far from home as {before}.")
    story.hold(story.fact(k), "*", story.focus)


TRAVELLING_EVENTS = (_ride_on, _turn_back, _drive, _halfway_home, _times_as_far)


# Making: a shop produces, breaks, stocks.


def _making(story: Story, num_steps: int) -> None:
    k, n = story.number(2, 9), story.number(3, 40)
    story.say(f"{story.who} makes {n} {story.thing} an hour for {k} hours.")
    claim = f"{story.who} makes {{}} {story.thing}."
    story.focus = story.derive(story.fact(n), "*", story.fact(k), claim)
    _tell(story, num_steps, MAKING_EVENTS)
    story.question = f"How many {story.thing} are in the shop of {story.who}?"


def _stock(story: Story) -> None:
    n = story.number(2, min(90, MAX_VALUE - story.focus.value))
    story.say(f"The shop gets {n} more {story.thing}.", f"Then {n} more {story.thing} come.")
    story.focus = story.derive(story.focus, "+", story.fact(n), f"The shop has {{}} {story.thing}.")


def _customers(story: Story) -> None:
    k = story.number(2, 9)
    n = story.number(2, min(30, (story.focus.value - 2) // k))
    story.say(f"{k} people buy {n} {story.thing} each.")
    sold = story.derive(story.fact(k), "*", story.fact(n), f"The people buy {{}} {story.thing}.")
    story.focus = story.derive(story.focus, "-", sold, f"The shop has {{}} {story.thing}.")


def _break_part(story: Story) -> None:
    d = story.divisor(story.focus.value, low=3, high=5)
    story.say(f"Then {PARTS[d]} of the {story.thing} break.")
    broken = story.derive(story.focus, "/", story.fact(d), f"In all {{}} {story.thing} break.")
    story.focus = story.derive(story.focus, "-", broken, f"The shop has {{}} {story.thing}.")


def _copy_stock(story: Story) -> None:
    k = story.factor(story.focus.value, high=4)
    story.say(f"Then the shop makes the number of {story.thing} {k} times as large.")
    story.focus = story.derive(story.fact(k), "*", story.focus, f"The shop has {{}} {story.thing}.")


def _sell_half_stock(story: Story) -> None:
    story.say(f"Then half of the {story.thing} are sold.")
    story.focus = story.derive(story.focus, "/", story.fact(2), f"The shop has {{}} {story.thing}.")


MAKING_EVENTS = (_stock, _customers, _break_part, _copy_stock, _sell_half_stock)


# Gifts: trading and comparing in one story (kept out of training).


def _gifts(story: Story, num_steps: int) -> None:
    _start_holding(story)
    _tell(story, num_steps, (*TRADING_EVENTS, *[_compare] * 4))
    story.question = f"How many {story.thing} does {story.who} have now?"


def ask_full_trays(story: Story) -> None:
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


FAMILIES: dict[str, Callable[[Story, int], None]] = {
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
