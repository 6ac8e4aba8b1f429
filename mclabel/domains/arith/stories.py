"""The families of stories, their events, and the program nodes that each event adds.

A story is about named people and things. Each event adds a sentence to the problem, and nodes to
its hidden program. The *tracked quantity* is the amount that the question will ask for. A story
ends when the tracked quantity needs the requested number of nodes. Two families are kept out of
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
"""Largest answer of a problem that ends in a quotient."""

CONTAINERS = ("bags", "boxes", "crates", "baskets")
TRAYS = ("trays", "racks")
PARTS = {2: "half", 3: "a third", 4: "a quarter", 5: "a fifth"}


def _add_events(story: Story, num_steps: int, events: Sequence[str]) -> None:
    """Add random events with these names until the tracked quantity depends on enough nodes.

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
    person, n = (
        story.draw_person() if len(story.people) > 3 else story.people[0],
        story.draw_number(2, 60),
    )
    story.add_sentence(f"{person} has {n} {thing}.", f"{person} buys {n} {thing}.")


# Events that several families share. Wordings and claims are formatted with the person, the thing
# and the numbers.


def _add_sentence(story: Story, wordings: Sequence[str], **values: object) -> None:
    story.add_sentence(
        *(text.format(person=story.person, thing=story.thing, **values) for text in wordings)
    )


def _find_largest_change(story: Story, op: Operation) -> int:
    """Return the largest amount by which the tracked quantity may rise or fall."""
    return MAX_VALUE - story.focus.value if op == "+" else story.focus.value - 2


def _make_number_event(op: Operation, limit: int, *wordings: str) -> Event:
    """Return an event in which the tracked quantity rises or falls by a number `n`.

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
    """Return an event in which the tracked quantity rises or falls by a product `k * n`.

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
        claim_text = claim.format(person=story.person, thing=story.thing, item=item)
        product = story.derive_quantity(Quantity(left), "*", Quantity(right), claim_text)
        story.update_holding(story.focus, op, product)

    return add_event


def _make_halving_event(*wordings: str) -> Event:
    """Return an event that halves the tracked quantity."""

    def add_event(story: Story) -> None:
        _add_sentence(story, wordings)
        story.update_holding(story.focus, "/", Quantity(2))

    return add_event


def _make_part_removal_event(wording: str, claim: str) -> Event:
    """Return an event that derives a part of the tracked quantity, and then subtracts it."""

    def add_event(story: Story) -> None:
        divisor = story.draw_divisor(story.focus.value, low=3, high=5)
        _add_sentence(story, [wording], part=PARTS[divisor])
        claim_text = claim.format(person=story.person, thing=story.thing)
        part = story.derive_quantity(story.focus, "/", Quantity(divisor), claim_text)
        story.update_holding(story.focus, "-", part)

    return add_event


# Trading: things change hands.


def _write_trading_story(story: Story, num_steps: int) -> None:
    _start_holding(story)
    _add_events(story, num_steps, tuple(_TRADING_EVENTS))
    story.question = f"How many {story.thing} does {story.person} have now?"


def _start_holding(story: Story) -> None:
    n = story.draw_number(12, 120)
    story.add_sentence(
        f"{story.person} has {n} {story.thing}.", f"{story.person} starts with {n} {story.thing}."
    )
    story.focus = Quantity(n)


def _add_half_transfer(story: Story) -> None:
    if len(story.people) < 4:
        raise InfeasibleDraw
    receiver, n = story.draw_person(), story.draw_number(2, 60)
    story.add_sentence(
        f"{receiver} has {n} {story.thing} and gets half of the {story.thing} of {story.person}."
    )
    part = story.derive_quantity(
        story.focus, "/", Quantity(2), (f"{story.person} gives {{}} {story.thing}.")
    )
    story.person = receiver
    story.update_holding(Quantity(n), "+", part)


_TRADING_EVENTS: dict[str, Event] = {
    "buy": _make_number_event(
        "+", 90, "{person} buys {n} {thing}.", "{person} finds {n} more {thing}."
    ),
    "sell": _make_number_event(
        "-", 90, "{person} sells {n} {thing}.", "{person} loses {n} {thing}."
    ),
    "receive": _make_number_event("+", 60, "{other} gives {n} {thing} to {person}."),
    "give": _make_number_event("-", 60, "{person} gives {n} {thing} to {other}."),
    "sell_half": _make_halving_event(
        "{person} sells half of the {thing}.", "{person} loses half of the {thing}."
    ),
    "give_part": _make_part_removal_event(
        "{person} gives away {part} of the {thing}.", "{person} gives away {{}} {thing}."
    ),
    "pass_on_half": _add_half_transfer,
}


# Comparing: each person's amount is stated relative to the amounts of others.


def _write_comparing_story(story: Story, num_steps: int) -> None:
    _start_holding(story)
    holdings = [(story.person, story.focus)]
    while story.count_needed_nodes() < num_steps:
        if story.rng.random() < 0.2:
            _add_distraction(story)
        _add_comparison(story, holdings)
    story.question = f"How many {story.thing} does {story.person} have?"


def _write_riddle_story(story: Story, num_steps: int) -> None:
    """Add the comparisons of a `comparing` story in reverse order.

    The person whose amount is asked for comes first, the person with a stated amount last.
    """
    _write_comparing_story(story, num_steps)
    story.sentences.reverse()


def _add_comparison(story: Story, holdings: list[tuple[str, Quantity]] | None = None) -> None:
    if len(story.people) < 3:
        raise InfeasibleDraw
    holdings = holdings if holdings is not None else [(story.person, story.focus)]
    reference_person, amount = holdings[-1]
    person, thing, value = story.draw_person(), story.thing, amount.value
    story.person = person
    comparisons = ["times", "more", "fewer", "part"]
    if len(holdings) > 1:
        comparisons += ["together", "above"]
    comparison = story.event = story.rng.choice(comparisons)
    if comparison == "times":
        k = story.draw_factor(value, high=6)
        story.add_sentence(f"{person} has {k} times as many {thing} as {reference_person}.")
        story.update_holding(Quantity(k), "*", amount)
    elif comparison == "more":
        n = story.draw_number(2, min(90, MAX_VALUE - value))
        story.add_sentence(f"{person} has {n} more {thing} than {reference_person}.")
        story.update_holding(amount, "+", Quantity(n))
    elif comparison == "fewer":
        n = story.draw_number(2, min(90, value - 2))
        story.add_sentence(f"{person} has {n} fewer {thing} than {reference_person}.")
        story.update_holding(amount, "-", Quantity(n))
    elif comparison == "part":
        divisor = story.draw_divisor(value, high=5)
        story.add_sentence(f"{person} has {PARTS[divisor]} as many {thing} as {reference_person}.")
        story.update_holding(amount, "/", Quantity(divisor))
    else:
        other, other_amount = story.rng.choice(holdings[:-1])
        if comparison == "together":
            story.add_sentence(
                f"{person} has as many {thing} as {reference_person} and {other} together."
            )
            story.update_holding(amount, "+", other_amount)
        else:
            (richer_person, larger), (poorer_person, smaller) = (
                (reference_person, amount),
                (other, other_amount),
            )
            if smaller.value > larger.value:
                (richer_person, larger), (poorer_person, smaller) = (
                    (poorer_person, smaller),
                    (richer_person, larger),
                )
            if larger.value - smaller.value < 2:
                raise InfeasibleDraw
            story.add_sentence(
                f"{person} has as many {thing} as {richer_person} has more than {poorer_person}."
            )
            story.update_holding(larger, "-", smaller)
    holdings.append((person, story.focus))


# Packing: containers times contents, equal piles.


def _write_packing_story(story: Story, num_steps: int) -> None:
    containers = story.rng.choice(CONTAINERS)
    k, n = story.draw_number(2, 9), story.draw_number(3, 40)
    story.add_sentence(f"{story.person} fills {k} {containers} with {n} {story.thing} each.")
    story.focus = story.derive_quantity(
        Quantity(k), "*", Quantity(n), (f"The {containers} hold {{}} {story.thing}.")
    )
    _add_events(story, num_steps, tuple(_PACKING_EVENTS))
    story.question = f"How many {story.thing} does {story.person} have in the end?"


def _add_pile_division(story: Story) -> None:
    divisor = story.draw_divisor(story.focus.value)
    story.add_sentence(
        f"{story.person} makes {divisor} equal piles of the {story.thing} and keeps one pile."
    )
    story.update_holding(story.focus, "/", Quantity(divisor))


_PACKING_EVENTS: dict[str, Event] = {
    "add_loose": _make_number_event("+", 90, "{person} adds {n} loose {thing}."),
    "take_out": _make_number_event("-", 90, "{person} takes out {n} bad {thing}."),
    "add_containers": _make_product_event(
        "+",
        30,
        "{person} adds {k} more {item} of {n} {thing} each.",
        "{person} adds {{}} {thing}.",
        items=CONTAINERS,
    ),
    "keep_pile": _add_pile_division,
}


# Shopping: money comes and goes.


def _write_shopping_story(story: Story, num_steps: int) -> None:
    n = story.draw_number(40, 180)
    story.holding_clause = "has {} dollars"
    story.add_sentence(
        f"{story.person} has {n} dollars.", f"{story.person} starts with {n} dollars."
    )
    story.focus = Quantity(n)
    _add_events(story, num_steps, tuple(_SHOPPING_EVENTS))
    story.question = f"How many dollars does {story.person} have left?"


_SHOPPING_EVENTS: dict[str, Event] = {
    "buy_several": _make_product_event(
        "-",
        40,
        "{person} buys {k} {item} for {n} dollars each.",
        "The {item} cost {{}} dollars.",
        items=THINGS,
    ),
    "pay": _make_number_event(
        "-", 90, "{person} pays {n} dollars for a ticket.", "{person} loses {n} dollars."
    ),
    "earn": _make_product_event(
        "+",
        30,
        "{person} earns {n} dollars a day for {k} days.",
        "{person} earns {{}} dollars.",
        is_rate=True,
    ),
    "spend_half": _make_halving_event("{person} spends half of the money."),
    "spend_part": _make_part_removal_event(
        "{person} spends {part} of the money.", "{person} spends {{}} dollars."
    ),
}


# Travelling: kilometres from home.


def _write_travelling_story(story: Story, num_steps: int) -> None:
    story.holding_clause = "is {} km from home"
    k, n = story.draw_number(2, 9), story.draw_number(3, 40)
    story.add_sentence(f"{story.person} walks {n} km a day for {k} days.")
    story.focus = story.derive_quantity(
        Quantity(n), "*", Quantity(k), f"{story.person} walks {{}} km."
    )
    _add_events(story, num_steps, tuple(_TRAVELLING_EVENTS))
    story.question = f"How many km from home is {story.person}?"


def _add_times_as_far(story: Story) -> None:
    if len(story.people) < 4:
        raise InfeasibleDraw
    k, reference_person = story.draw_factor(story.focus.value, high=5), story.person
    story.person = story.draw_person()
    story.add_sentence(f"{story.person} is {k} times as far from home as {reference_person}.")
    story.update_holding(Quantity(k), "*", story.focus)


_TRAVELLING_EVENTS: dict[str, Event] = {
    "ride_on": _make_number_event(
        "+", 90, "{person} rides {n} km more.", "{person} goes on for {n} km."
    ),
    "turn_back": _make_number_event(
        "-", 90, "{person} goes {n} km back.", "{person} turns and rides {n} km back."
    ),
    "drive": _make_product_event(
        "+", 40, "{person} drives on for {k} hours at {n} km an hour.", "{person} drives {{}} km."
    ),
    "halfway_home": _make_halving_event("{person} goes half of the way back."),
    "times_as_far": _add_times_as_far,
}


# Making: a shop produces, breaks, stocks.


def _write_making_story(story: Story, num_steps: int) -> None:
    k, n = story.draw_number(2, 9), story.draw_number(3, 40)
    story.add_sentence(f"{story.person} makes {n} {story.thing} an hour for {k} hours.")
    story.focus = story.derive_quantity(
        Quantity(n), "*", Quantity(k), (f"{story.person} makes {{}} {story.thing}.")
    )
    story.owner = "The shop"
    _add_events(story, num_steps, tuple(_MAKING_EVENTS))
    story.question = f"How many {story.thing} are in the shop of {story.person}?"


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
    "break_part": _make_part_removal_event(
        "Then {part} of the {thing} break.", "In all {{}} {thing} break."
    ),
    "copy_stock": _add_stock_multiplication,
    "sell_half_stock": _make_halving_event("Then half of the {thing} are sold."),
}


# Gifts: trading and comparing in one story (kept out of training).


def _write_gift_story(story: Story, num_steps: int) -> None:
    _start_holding(story)
    _add_events(story, num_steps, (*_TRADING_EVENTS, *["compare"] * 4))
    story.question = f"How many {story.thing} does {story.person} have now?"


def add_tray_question(story: Story) -> None:
    """End a story with a quotient from 1 to 5, which a wrong amount often gives, too."""
    story.event = "fill_trays"
    trays = story.rng.choice(TRAYS)
    quotient = story.draw_number(1, MAX_SMALL_ANSWER)
    value = story.focus.value
    tray_size = story.draw_number(max(2, value // (quotient + 1) + 1), value // quotient)
    unit = story.holding_clause.split("{} ")[1].split()[0]
    story.add_sentence(f"It takes {tray_size} {unit} to fill one of the {trays}.")
    story.focus = story.derive_quantity(
        story.focus, "//", Quantity(tray_size), f"This fills {{}} {trays}."
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
