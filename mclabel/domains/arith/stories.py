"""The families of stories, their events, and the program nodes that each event adds.

A story is about named people and things. Each event adds a sentence to the problem, and nodes to
its hidden program. The *quantity in focus* is the amount that the question will ask for. A story
ends when the quantity in focus needs the requested number of nodes. Two families are kept out of
training: `gifts` mixes the events of two training families, and `riddles` states comparisons in
reverse order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mclabel.domains.arith.program import (
    MAX_VALUE,
    THINGS,
    InfeasibleDraw,
    Operation,
    Quantity,
    Story,
)

Event = Callable[[Story], None]

MAX_SMALL_ANSWER = 5

CONTAINERS = ("bags", "boxes", "crates", "baskets")
TRAYS = ("trays", "racks")
PARTS = {2: "half", 3: "a third", 4: "a quarter", 5: "a fifth"}


def _add_events(story: Story, num_steps: int, events: Sequence[str]) -> None:
    """Add random events with these names until the quantity in focus depends on enough nodes.

    Args:
        story: story to which events are added.
        num_steps: number of nodes, at least.
        events: names of the events.
    """
    while story.count_needed_nodes() < num_steps:
        if story.rng.random() < 0.25:
            _add_distraction(story)
        story.event = story.rng.choice(events)
        _EVENTS[story.event](story)


def _add_distraction(story: Story) -> None:
    """Add a true fact that the question does not need, often about the same kind of thing."""
    thing = story.thing if story.rng.random() < 0.6 else story.other_thing
    who, n = (
        story.draw_person() if len(story.people) > 3 else story.people[0],
        story.draw_number(2, 60),
    )
    story.add_sentence(f"{who} has {n} {thing}.", f"{who} buys {n} {thing}.")


# Events that several families share. Wordings and claims are formatted with who, thing and numbers.


def _add_sentence(story: Story, wordings: Sequence[str], **values: object) -> None:
    story.add_sentence(
        *(text.format(who=story.who, thing=story.thing, **values) for text in wordings)
    )


def _find_largest_change(story: Story, op: Operation) -> int:
    """Return the largest amount by which the quantity in focus may rise or fall."""
    return MAX_VALUE - story.focus.value if op == "+" else story.focus.value - 2


def _make_number_event(op: Operation, limit: int, *wordings: str) -> Event:
    """Return an event in which the quantity in focus rises or falls by a number `n`.

    Args:
        op: sign of the change.
        limit: largest `n`.
        wordings: sentences of the problem, one of which is drawn.
    """

    def add_event(story: Story) -> None:
        n = story.draw_number(2, min(limit, _find_largest_change(story, op)))
        other = story.rng.choice(story.people) if "{other}" in wordings[0] else ""
        _add_sentence(story, wordings, n=n, other=other)
        story.update_holding(story.focus, op, Quantity(n))

    return add_event


def _make_product_event(
    op: Operation,
    limit: int,
    wording: str,
    claim: str,
    *,
    items: Sequence[str] = (),
    is_rate: bool = False,
) -> Event:
    """Return an event in which the quantity in focus rises or falls by a product `k * n`.

    Args:
        op: sign of the change.
        limit: largest `n`.
        wording: sentence of the problem.
        claim: sentence that states the product.
        items: nouns, one of which is drawn and replaces `{item}` in the sentences.
        is_rate: write the product as `n * k`, for a rate `n` over `k` units of time.
    """

    def add_event(story: Story) -> None:
        item = story.rng.choice(items) if items else ""
        k = story.draw_number(2, 9)
        n = story.draw_number(2, min(limit, _find_largest_change(story, op) // k))
        _add_sentence(story, [wording], n=n, k=k, item=item)
        left, right = (n, k) if is_rate else (k, n)
        stated = claim.format(who=story.who, thing=story.thing, item=item)
        product = story.derive_quantity(Quantity(left), "*", Quantity(right), stated)
        story.update_holding(story.focus, op, product)

    return add_event


def _make_halving_event(*wordings: str) -> Event:
    """Return an event that halves the quantity in focus."""

    def add_event(story: Story) -> None:
        _add_sentence(story, wordings)
        story.update_holding(story.focus, "/", Quantity(2))

    return add_event


def _make_part_event(wording: str, claim: str) -> Event:
    """Return an event that derives a part of the quantity in focus, and then subtracts it."""

    def add_event(story: Story) -> None:
        d = story.draw_divisor(story.focus.value, low=3, high=5)
        _add_sentence(story, [wording], part=PARTS[d])
        stated = claim.format(who=story.who, thing=story.thing)
        part = story.derive_quantity(story.focus, "/", Quantity(d), stated)
        story.update_holding(story.focus, "-", part)

    return add_event


# Trading: things change hands.


def _write_trading_story(story: Story, num_steps: int) -> None:
    _start_holding(story)
    _add_events(story, num_steps, tuple(_TRADING_EVENTS))
    story.question = f"How many {story.thing} does {story.who} have now?"


def _start_holding(story: Story) -> None:
    n = story.draw_number(12, 120)
    story.add_sentence(
        f"{story.who} has {n} {story.thing}.", f"{story.who} starts with {n} {story.thing}."
    )
    story.focus = Quantity(n)


def _add_half_transfer(story: Story) -> None:
    if len(story.people) < 4:
        raise InfeasibleDraw
    taker, n = story.draw_person(), story.draw_number(2, 60)
    story.add_sentence(
        f"{taker} has {n} {story.thing} and gets half of the {story.thing} of {story.who}."
    )
    part = story.derive_quantity(
        story.focus, "/", Quantity(2), (f"{story.who} gives {{}} {story.thing}.")
    )
    story.who = taker
    story.update_holding(Quantity(n), "+", part)


_TRADING_EVENTS: dict[str, Event] = {
    "buy": _make_number_event("+", 90, "{who} buys {n} {thing}.", "{who} finds {n} more {thing}."),
    "sell": _make_number_event("-", 90, "{who} sells {n} {thing}.", "{who} loses {n} {thing}."),
    "receive": _make_number_event("+", 60, "{other} gives {n} {thing} to {who}."),
    "give": _make_number_event("-", 60, "{who} gives {n} {thing} to {other}."),
    "sell_half": _make_halving_event(
        "{who} sells half of the {thing}.", "{who} loses half of the {thing}."
    ),
    "give_part": _make_part_event(
        "{who} gives away {part} of the {thing}.", "{who} gives away {{}} {thing}."
    ),
    "pass_on_half": _add_half_transfer,
}


# Comparing: each person's amount is stated relative to the amounts of others.


def _write_comparing_story(story: Story, num_steps: int) -> None:
    _start_holding(story)
    holdings = [(story.who, story.focus)]
    while story.count_needed_nodes() < num_steps:
        if story.rng.random() < 0.2:
            _add_distraction(story)
        _add_comparison(story, holdings)
    story.question = f"How many {story.thing} does {story.who} have?"


def _write_riddle_story(story: Story, num_steps: int) -> None:
    """Add the comparisons of a `comparing` story in reverse order.

    The person whose amount is asked for comes first, the person with a stated amount last.
    """
    _write_comparing_story(story, num_steps)
    story.sentences.reverse()


def _add_comparison(story: Story, holdings: list[tuple[str, Quantity]] | None = None) -> None:
    if len(story.people) < 3:
        raise InfeasibleDraw
    holdings = holdings if holdings is not None else [(story.who, story.focus)]
    before, amount = holdings[-1]
    who, thing, value = story.draw_person(), story.thing, amount.value
    story.who = who
    kinds = ["times", "more", "fewer", "part"]
    if len(holdings) > 1:
        kinds += ["together", "above"]
    kind = story.event = story.rng.choice(kinds)
    if kind == "times":
        k = story.draw_factor(value, high=6)
        story.add_sentence(f"{who} has {k} times as many {thing} as {before}.")
        story.update_holding(Quantity(k), "*", amount)
    elif kind == "more":
        n = story.draw_number(2, min(90, MAX_VALUE - value))
        story.add_sentence(f"{who} has {n} more {thing} than {before}.")
        story.update_holding(amount, "+", Quantity(n))
    elif kind == "fewer":
        n = story.draw_number(2, min(90, value - 2))
        story.add_sentence(f"{who} has {n} fewer {thing} than {before}.")
        story.update_holding(amount, "-", Quantity(n))
    elif kind == "part":
        d = story.draw_divisor(value, high=5)
        story.add_sentence(f"{who} has {PARTS[d]} as many {thing} as {before}.")
        story.update_holding(amount, "/", Quantity(d))
    else:
        other, theirs = story.rng.choice(holdings[:-1])
        if kind == "together":
            story.add_sentence(f"{who} has as many {thing} as {before} and {other} together.")
            story.update_holding(amount, "+", theirs)
        else:
            (big, more), (low, less) = (before, amount), (other, theirs)
            if less.value > more.value:
                (big, more), (low, less) = (low, less), (big, more)
            if more.value - less.value < 2:
                raise InfeasibleDraw
            story.add_sentence(f"{who} has as many {thing} as {big} has more than {low}.")
            story.update_holding(more, "-", less)
    holdings.append((who, story.focus))


# Packing: containers times contents, equal piles.


def _write_packing_story(story: Story, num_steps: int) -> None:
    containers = story.rng.choice(CONTAINERS)
    k, n = story.draw_number(2, 9), story.draw_number(3, 40)
    story.add_sentence(f"{story.who} fills {k} {containers} with {n} {story.thing} each.")
    story.focus = story.derive_quantity(
        Quantity(k), "*", Quantity(n), (f"The {containers} hold {{}} {story.thing}.")
    )
    _add_events(story, num_steps, tuple(_PACKING_EVENTS))
    story.question = f"How many {story.thing} does {story.who} have in the end?"


def _add_pile_division(story: Story) -> None:
    d = story.draw_divisor(story.focus.value)
    story.add_sentence(
        f"{story.who} makes {d} equal piles of the {story.thing} and keeps one pile."
    )
    story.update_holding(story.focus, "/", Quantity(d))


_PACKING_EVENTS: dict[str, Event] = {
    "add_loose": _make_number_event("+", 90, "{who} adds {n} loose {thing}."),
    "take_out": _make_number_event("-", 90, "{who} takes out {n} bad {thing}."),
    "add_containers": _make_product_event(
        "+",
        30,
        "{who} adds {k} more {item} of {n} {thing} each.",
        "{who} adds {{}} {thing}.",
        items=CONTAINERS,
    ),
    "keep_pile": _add_pile_division,
}


# Shopping: money comes and goes.


def _write_shopping_story(story: Story, num_steps: int) -> None:
    n = story.draw_number(40, 180)
    story.holding = "has {} dollars"
    story.add_sentence(f"{story.who} has {n} dollars.", f"{story.who} starts with {n} dollars.")
    story.focus = Quantity(n)
    _add_events(story, num_steps, tuple(_SHOPPING_EVENTS))
    story.question = f"How many dollars does {story.who} have left?"


_SHOPPING_EVENTS: dict[str, Event] = {
    "buy_several": _make_product_event(
        "-",
        40,
        "{who} buys {k} {item} for {n} dollars each.",
        "The {item} cost {{}} dollars.",
        items=THINGS,
    ),
    "pay": _make_number_event(
        "-", 90, "{who} pays {n} dollars for a ticket.", "{who} loses {n} dollars."
    ),
    "earn": _make_product_event(
        "+",
        30,
        "{who} earns {n} dollars a day for {k} days.",
        "{who} earns {{}} dollars.",
        is_rate=True,
    ),
    "spend_half": _make_halving_event("{who} spends half of the money."),
    "spend_part": _make_part_event(
        "{who} spends {part} of the money.", "{who} spends {{}} dollars."
    ),
}


# Travelling: kilometres from home.


def _write_travelling_story(story: Story, num_steps: int) -> None:
    story.holding = "is {} km from home"
    k, n = story.draw_number(2, 9), story.draw_number(3, 40)
    story.add_sentence(f"{story.who} walks {n} km a day for {k} days.")
    story.focus = story.derive_quantity(
        Quantity(n), "*", Quantity(k), f"{story.who} walks {{}} km."
    )
    _add_events(story, num_steps, tuple(_TRAVELLING_EVENTS))
    story.question = f"How many km from home is {story.who}?"


def _add_times_as_far(story: Story) -> None:
    if len(story.people) < 4:
        raise InfeasibleDraw
    k, before = story.draw_factor(story.focus.value, high=5), story.who
    story.who = story.draw_person()
    story.add_sentence(f"{story.who} is {k} times as far from home as {before}.")
    story.update_holding(Quantity(k), "*", story.focus)


_TRAVELLING_EVENTS: dict[str, Event] = {
    "ride_on": _make_number_event("+", 90, "{who} rides {n} km more.", "{who} goes on for {n} km."),
    "turn_back": _make_number_event(
        "-", 90, "{who} goes {n} km back.", "{who} turns and rides {n} km back."
    ),
    "drive": _make_product_event(
        "+", 40, "{who} drives on for {k} hours at {n} km an hour.", "{who} drives {{}} km."
    ),
    "halfway_home": _make_halving_event("{who} goes half of the way back."),
    "times_as_far": _add_times_as_far,
}


# Making: a shop produces, breaks, stocks.


def _write_making_story(story: Story, num_steps: int) -> None:
    k, n = story.draw_number(2, 9), story.draw_number(3, 40)
    story.add_sentence(f"{story.who} makes {n} {story.thing} an hour for {k} hours.")
    story.focus = story.derive_quantity(
        Quantity(n), "*", Quantity(k), (f"{story.who} makes {{}} {story.thing}.")
    )
    story.holder = "The shop"
    _add_events(story, num_steps, tuple(_MAKING_EVENTS))
    story.question = f"How many {story.thing} are in the shop of {story.who}?"


def _add_stock_multiplication(story: Story) -> None:
    k = story.draw_factor(story.focus.value, high=4)
    story.add_sentence(f"Then the shop makes the number of {story.thing} {k} times as large.")
    story.update_holding(Quantity(k), "*", story.focus)


_MAKING_EVENTS: dict[str, Event] = {
    "stock": _make_number_event(
        "+", 90, "The shop gets {n} more {thing}.", "Then {n} more {thing} come."
    ),
    "customers": _make_product_event(
        "-", 30, "{k} people buy {n} {thing} each.", "The people buy {{}} {thing}."
    ),
    "break_part": _make_part_event(
        "Then {part} of the {thing} break.", "In all {{}} {thing} break."
    ),
    "copy_stock": _add_stock_multiplication,
    "sell_half_stock": _make_halving_event("Then half of the {thing} are sold."),
}


# Gifts: trading and comparing in one story (kept out of training).


def _write_gift_story(story: Story, num_steps: int) -> None:
    _start_holding(story)
    _add_events(story, num_steps, (*_TRADING_EVENTS, *["compare"] * 4))
    story.question = f"How many {story.thing} does {story.who} have now?"


def add_tray_question(story: Story) -> None:
    """End a story with a quotient from 1 to 5, which a wrong amount often gives, too."""
    story.event = "fill_trays"
    trays = story.rng.choice(TRAYS)
    quotient = story.draw_number(1, MAX_SMALL_ANSWER)
    value = story.focus.value
    room = story.draw_number(max(2, value // (quotient + 1) + 1), value // quotient)
    unit = story.holding.split("{} ")[1].split()[0]
    story.add_sentence(f"It takes {room} {unit} to fill one of the {trays}.")
    story.focus = story.derive_quantity(
        story.focus, "//", Quantity(room), f"This fills {{}} {trays}."
    )
    story.question = f"How many {trays} can be filled?"


_EVENTS: dict[str, Event] = {
    **_TRADING_EVENTS,
    **_PACKING_EVENTS,
    **_SHOPPING_EVENTS,
    **_TRAVELLING_EVENTS,
    **_MAKING_EVENTS,
    "compare": _add_comparison,
}

FAMILIES: dict[str, Callable[[Story, int], None]] = {
    "trading": _write_trading_story,
    "comparing": _write_comparing_story,
    "packing": _write_packing_story,
    "shopping": _write_shopping_story,
    "travelling": _write_travelling_story,
    "making": _write_making_story,
    "gifts": _write_gift_story,
    "riddles": _write_riddle_story,
}
HELD_OUT_FAMILIES = ("gifts", "riddles")
TRAIN_FAMILIES = tuple(f for f in FAMILIES if f not in HELD_OUT_FAMILIES)
