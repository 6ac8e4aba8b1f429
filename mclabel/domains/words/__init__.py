"""Word problems that a real language model of 135 million parameters can partly solve.

SmolLM2-135M alone solves hardly any problem of four steps. A LoRA adapter makes it better at them.
scripts/words_adapter.py trains the adapter on worked solutions of some templates, and it improves
the solutions of other templates, too.

Problems have four to six steps. Each has a worked solution in one of several wordings. A *template*
is a function that draws a problem with a random generator. The adapter of `smollm2:words` is
trained on the templates in `TRAINED`. It has seen neither stories nor wordings of those in
`HELD_OUT`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from random import Random

ADAPTER = Path(__file__).parent / "adapter.safetensors"
"""File of the LoRA weights in bfloat16, with the parameter names of peft."""
RANK, ALPHA = 4, 16
"""Rank and scaling numerator of the LoRA adapter."""


NAMES = (
    *("Ana", "Ben", "Chloe", "Dan", "Eva", "Finn", "Gina", "Hugo"),
    *("Iris", "Jack", "Kofi", "Lena", "Mia", "Noah", "Omar", "Petra"),
)


@dataclass
class Story:
    """A problem and its worked solution under construction."""

    rng: Random
    sentences: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)

    def add_sentence(self, *wordings: str) -> None:
        """Add a sentence to the problem, in a randomly drawn wording."""
        self.sentences.append(self.rng.choice(wordings))

    def add_step(self, left: int, sign: str, right: int, things: str) -> int:
        """Add a step that computes `left sign right`, and return the result.

        Args:
            left: left operand.
            sign: `+`, `-` or `*`.
            right: right operand.
            things: noun for what the result counts.
        """
        value = {"+": left + right, "-": left - right, "*": left * right}[sign]
        equation = f"{left} {sign} {right} = {value}"
        is_first = not self.steps
        self.steps.append(
            self.rng.choice(
                (
                    f"{'First' if is_first else 'Then'} there are {equation} {things}.",
                    f"{'We start with' if is_first else 'That makes'} {equation} {things}.",
                    f"{'The' if is_first else 'Now the'} number of {things} is {equation}.",
                    f"{equation} {things}",
                    f"{equation}, so we have {value} {things}.",
                )
            )
        )
        return value

    def finish(self, question: str, value: int) -> WorkedProblem:
        """Finish the problem with its question, and the solution with its answer."""
        closing = self.rng.choice((f"The answer is {value}.", f"So the answer is {value}."))
        return WorkedProblem(
            problem=" ".join([*self.sentences, question]),
            solution="\n".join([*self.steps, closing]),
            answer=str(value),
        )


@dataclass(frozen=True)
class WorkedProblem:
    """A problem with its worked solution."""

    problem: str
    solution: str
    answer: str
    template: str = ""


def bus(rng: Random) -> WorkedProblem:
    story, total = Story(rng), rng.randint(8, 25)
    story.add_sentence(f"A bus leaves with {total} people.", f"There are {total} people on a bus.")
    for stop in ("first", "second", "third")[: rng.randint(2, 3)]:
        on, off = rng.randint(2, 9), rng.randint(1, 6)
        story.add_sentence(
            f"At the {stop} stop {on} people get on and {off} get off.",
            f"At the {stop} stop {off} people get off and {on} people get on.",
        )
        total = story.add_step(total, "+", on, "people")
        total = story.add_step(total, "-", off, "people")
    return story.finish("How many people are on the bus now?", total)


def shop(rng: Random) -> WorkedProblem:
    story, name = Story(rng), rng.choice(NAMES)
    things = rng.sample(("pens", "books", "cups", "toys", "caps", "bags"), 3)
    parts = [(rng.randint(2, 6), rng.randint(2, 6), thing) for thing in things]
    listed_goods = ", ".join(
        f"{n} {thing} for {price} dollars each" for n, price, thing in parts[:-1]
    )
    n, price, thing = parts[-1]
    story.add_sentence(f"{name} buys {listed_goods} and {n} {thing} for {price} dollars each.")
    costs = [story.add_step(n, "*", price, f"dollars for the {thing}") for n, price, thing in parts]
    total = costs[0]
    for cost in costs[1:]:
        total = story.add_step(total, "+", cost, "dollars in all")
    return story.finish(f"How many dollars does {name} pay?", total)


def marbles(rng: Random) -> WorkedProblem:
    story, (name, other) = Story(rng), rng.sample(NAMES, 2)
    total = rng.randint(12, 30)
    story.add_sentence(f"{name} has {total} marbles.", f"{name} owns {total} marbles.")
    for _ in range(rng.randint(4, 5)):
        if total > 20 and rng.random() < 0.5:
            n = rng.randint(2, 9)
            story.add_sentence(
                f"{name} gives {n} of them to {other}.", f"{name} loses {n} marbles."
            )
            total = story.add_step(total, "-", n, "marbles")
        else:
            n = rng.randint(2, 9)
            story.add_sentence(f"{name} wins {n} more.", f"{other} gives {name} {n} marbles.")
            total = story.add_step(total, "+", n, "marbles")
    return story.finish(f"How many marbles does {name} have in the end?", total)


def boxes(rng: Random) -> WorkedProblem:
    story, num_boxes, eggs_per_box = Story(rng), rng.randint(2, 6), rng.randint(3, 6)
    num_trays, eggs_per_tray = rng.randint(2, 5), rng.randint(3, 6)
    broken, sold = rng.randint(2, 6), rng.randint(2, 6)
    story.add_sentence(
        f"A shop gets {num_boxes} boxes of {eggs_per_box} eggs and {num_trays} trays of "
        f"{eggs_per_tray} eggs."
    )
    story.add_sentence(f"{broken} of the eggs are broken.", f"{broken} eggs break.")
    eggs_in_boxes = story.add_step(num_boxes, "*", eggs_per_box, "eggs in boxes")
    eggs_on_trays = story.add_step(num_trays, "*", eggs_per_tray, "eggs on trays")
    total = story.add_step(eggs_in_boxes, "+", eggs_on_trays, "eggs")
    total = story.add_step(total, "-", broken, "whole eggs")
    sold = min(sold, total)
    story.add_sentence(f"The shop sells {sold} whole eggs.")
    total = story.add_step(total, "-", sold, "eggs left")
    return story.finish("How many whole eggs are left?", total)


def savings(rng: Random) -> WorkedProblem:
    story, name = Story(rng), rng.choice(NAMES)
    weeks, weekly = rng.randint(2, 6), rng.randint(3, 6)
    gift, spent = rng.randint(2, 12), rng.randint(2, 6)
    story.add_sentence(f"{name} saves {weekly} dollars a week for {weeks} weeks.")
    story.add_sentence(f"Then {name} gets {gift} dollars as a gift and spends {spent} dollars.")
    total = story.add_step(weeks, "*", weekly, "dollars saved")
    total = story.add_step(total, "+", gift, "dollars")
    total = story.add_step(total, "-", spent, "dollars")
    found = rng.randint(2, 9)
    story.add_sentence(f"After that {name} finds {found} dollars.")
    total = story.add_step(total, "+", found, "dollars")
    return story.finish(f"How many dollars does {name} have?", total)


def pages(rng: Random) -> WorkedProblem:
    story, name = Story(rng), rng.choice(NAMES)
    days = rng.sample(range(3, 15), 4)
    story.add_sentence(f"{name} reads a book.")
    story.add_sentence(
        f"On Monday it is {days[0]} pages, on Tuesday {days[1]}, on Wednesday {days[2]} and on "
        f"Thursday {days[3]}."
    )
    total = days[0]
    for n in days[1:]:
        total = story.add_step(total, "+", n, "pages read")
    pages_left = rng.randint(5, 30)
    story.add_sentence(f"The book has {total + pages_left} pages.")
    total = story.add_step(total + pages_left, "-", total, "pages left")
    return story.finish(f"How many pages are left to read for {name}?", total)


def legs(rng: Random) -> WorkedProblem:
    story = Story(rng)
    kinds = rng.sample([("spiders", 8), ("cats", 4), ("hens", 2), ("ants", 6), ("crabs", 10)], 3)
    parts = [(rng.randint(2, 6), legs, kind) for kind, legs in kinds]
    descriptions = [f"{n} {kind} with {legs} legs each" for n, legs, kind in parts]
    story.add_sentence(f"There are {descriptions[0]}, {descriptions[1]} and {descriptions[2]}.")
    leg_counts = [story.add_step(n, "*", legs, f"legs of {kind}") for n, legs, kind in parts]
    total = story.add_step(leg_counts[0], "+", leg_counts[1], "legs")
    total = story.add_step(total, "+", leg_counts[2], "legs")
    return story.finish("How many legs are there?", total)


@dataclass(frozen=True, kw_only=True)
class PlainTemplate:
    """A template that draws its numbers first, states them, and then computes."""

    numbers: dict[str, tuple[int, int]]
    """Smallest and largest value of each number, by its name, in the order of drawing."""
    sentences: tuple[tuple[str, ...], ...]
    """Alternative wordings of each sentence. They are formatted with the numbers, and with the
    people `name` and `other`."""
    steps: tuple[tuple[str, str, str, str], ...]
    """Left operand, sign, right operand and counted things of each step. An operand is the name of
    a number, or `#` and the 0-based index of an earlier step."""
    question: str
    people: int = 0
    """Number of people in the story, up to 2."""

    def __call__(self, rng: Random) -> WorkedProblem:
        """Draw a problem with its worked solution."""
        story = Story(rng)
        names = [rng.choice(NAMES)] if self.people == 1 else rng.sample(NAMES, self.people)
        values = {name: rng.randint(*bounds) for name, bounds in self.numbers.items()}
        people = dict(zip(("name", "other"), names, strict=False))
        for wordings in self.sentences:
            story.add_sentence(*(wording.format(**values, **people) for wording in wordings))
        for index, (left, sign, right, things) in enumerate(self.steps):
            values[f"#{index}"] = story.add_step(values[left], sign, values[right], things)
        return story.finish(self.question, values[f"#{len(self.steps) - 1}"])


def sum_of_terms(rng: Random) -> WorkedProblem:
    story, total = Story(rng), rng.randint(5, 30)
    problem = f"{total}"
    for _ in range(rng.randint(3, 5)):
        n = rng.randint(2, 9)
        sign = "-" if total > n and rng.random() < 0.5 else "+"
        problem += f" {sign} {n}"
        value = total + n if sign == "+" else total - n
        story.steps.append(f"{total} {sign} {n} = {value}")
        total = value
    return story.finish(rng.choice((f"Calculate {problem}.", f"What is {problem}?")), total)


GAINED = (
    "{name} finds {n} more.",
    "{other} brings {n} {things}.",
    "{n} new {things} arrive.",
    "{name} buys {n} {things} at a market.",
    "{name} makes another {n}.",
    "The next day {n} {things} are added.",
    "{n} {things} come back.",
    "{name} picks up {n} {things}.",
)
LOST = (
    "{n} of them are sold.",
    "{other} takes {n} {things} away.",
    "{n} {things} get lost.",
    "{name} sells {n} {things} to {other}.",
    "{n} {things} break.",
    "{name} lends {n} {things} to {other}.",
    "In the evening {n} {things} are used up.",
    "{other} borrows {n} of the {things}.",
    "{n} {things} leave.",
)
THINGS = (
    *("stamps", "coins", "apples", "chairs", "lamps", "shells"),
    *("cards", "keys", "plates", "candles", "bricks", "shirts"),
)


def events(rng: Random) -> WorkedProblem:
    story, (name, other), things = Story(rng), rng.sample(NAMES, 2), rng.choice(THINGS)
    if rng.random() < 0.5:
        num_groups, group_size = rng.randint(2, 6), rng.randint(3, 6)
        story.add_sentence(
            f"{name} has {num_groups} bags with {group_size} {things} in each bag.",
            f"{name} fills {num_groups} shelves with {group_size} {things} each.",
            f"There are {num_groups} rows of {group_size} {things}.",
        )
        total = story.add_step(num_groups, "*", group_size, things)
    else:
        total = rng.randint(12, 30)
        story.add_sentence(
            f"{name} has {total} {things}.", f"There are {total} {things} in a room."
        )
    for _ in range(rng.randint(3, 5)):
        n = rng.randint(2, 9)
        is_loss = total > n and rng.random() < 0.5
        wording = rng.choice(LOST if is_loss else GAINED)
        story.add_sentence(wording.format(name=name, other=other, n=n, things=things))
        total = story.add_step(total, "-" if is_loss else "+", n, things)
    return story.finish(
        rng.choice((f"How many {things} are there now?", f"How many {things} are left?")), total
    )


def older(rng: Random) -> WorkedProblem:
    story, names = Story(rng), rng.sample(NAMES, 4)
    value = rng.randint(8, 25)
    story.add_sentence(f"{names[0]} collects {value} stones.", f"{names[0]} runs {value} rounds.")
    things = "stones" if "stones" in story.sentences[0] else "rounds"
    for previous_name, name in pairwise(names):
        n = rng.randint(2, 9)
        if value > n and rng.random() < 0.5:
            story.add_sentence(
                f"{name} has {n} fewer than {previous_name}.",
                f"{name} has {n} less than {previous_name}.",
            )
            value = story.add_step(value, "-", n, f"{things} of {name}")
        else:
            story.add_sentence(f"{name} has {n} more than {previous_name}.")
            value = story.add_step(value, "+", n, f"{things} of {name}")
    return story.finish(f"How many {things} does {names[-1]} have?", value)


TRAINED: dict[str, Callable[[Random], WorkedProblem]] = {
    template.__name__: template
    for template in (events, bus, shop, marbles, boxes, savings, pages, legs, older, sum_of_terms)
}
HELD_OUT: dict[str, Callable[[Random], WorkedProblem]] = {
    "farm": PlainTemplate(
        numbers={
            "rows": (2, 6),
            "trees": (3, 6),
            "cut": (2, 5),
            "planted": (3, 9),
            "bought": (2, 9),
        },
        sentences=(
            ("A farmer has {rows} rows of {trees} trees.",),
            ("The farmer cuts down {cut} trees. Then the farmer plants {planted} new trees.",),
            ("In spring {bought} more are planted.",),
        ),
        steps=(
            ("rows", "*", "trees", "trees"),
            ("#0", "-", "cut", "trees"),
            ("#1", "+", "planted", "trees"),
            ("#2", "+", "bought", "trees"),
        ),
        question="How many trees are there now?",
    ),
    "bakery": PlainTemplate(
        numbers={
            "trays": (3, 6),
            "each": (4, 6),
            "morning": (2, 5),
            "noon": (2, 5),
            "fresh": (3, 9),
        },
        sentences=(
            ("A baker bakes {trays} trays with {each} rolls on each tray.",),
            ("In the morning {morning} rolls are sold. At noon {noon} rolls are sold.",),
            ("In the afternoon the baker bakes {fresh} more rolls.",),
        ),
        steps=(
            ("trays", "*", "each", "rolls"),
            ("#0", "-", "morning", "rolls"),
            ("#1", "-", "noon", "rolls"),
            ("#2", "+", "fresh", "rolls"),
        ),
        question="How many rolls does the baker have?",
    ),
    "party": PlainTemplate(
        people=1,
        numbers={
            "tables": (3, 6),
            "seats": (4, 6),
            "chairs": (2, 6),
            "benches": (2, 6),
            "broken": (2, 5),
        },
        sentences=(
            ("For a party {name} puts up {tables} tables with {seats} seats each.",),
            ("There are also {benches} benches for {chairs} guests each.",),
            ("But {broken} seats are broken.",),
        ),
        steps=(
            ("tables", "*", "seats", "seats at tables"),
            ("benches", "*", "chairs", "seats on benches"),
            ("#0", "+", "#1", "seats"),
            ("#2", "-", "broken", "seats"),
        ),
        question="How many guests can sit down?",
    ),
    "zoo": PlainTemplate(
        numbers={
            "cages": (2, 6),
            "each": (3, 6),
            "pond": (3, 9),
            "sold": (2, 6),
            "hatched": (2, 9),
        },
        sentences=(
            ("A zoo has {cages} cages with {each} birds in each cage.",),
            ("There are {pond} more birds in a pond.", "{pond} more birds live in a pond."),
            ("The zoo sells {sold} birds.", "{sold} birds fly away."),
            ("In summer {hatched} young birds hatch.",),
        ),
        steps=(
            ("cages", "*", "each", "birds"),
            ("#0", "+", "pond", "birds"),
            ("#1", "-", "sold", "birds"),
            ("#2", "+", "hatched", "birds"),
        ),
        question="How many birds does the zoo have now?",
    ),
    "garage": PlainTemplate(
        numbers={
            "floors": (3, 6),
            "cars": (3, 8),
            "gone": (2, 8),
            "came": (2, 9),
            "late": (2, 6),
        },
        sentences=(
            ("A garage has {floors} floors with {cars} cars on each floor.",),
            ("In the morning {gone} cars drive off. Around noon {came} cars drive in.",),
            ("At night {late} cars drive off.",),
        ),
        steps=(
            ("floors", "*", "cars", "cars"),
            ("#0", "-", "gone", "cars"),
            ("#1", "+", "came", "cars"),
            ("#2", "-", "late", "cars"),
        ),
        question="How many cars are in the garage at the end?",
    ),
    "school": PlainTemplate(
        numbers={
            "groups": (3, 6),
            "each": (3, 6),
            "ill": (2, 5),
            "guests": (2, 6),
            "teachers": (2, 3),
        },
        sentences=(
            ("A class has {groups} groups of {each} children.",),
            ("Today {ill} of the children are ill.",),
            ("{guests} children of another class are guests. {teachers} teachers are there, too.",),
        ),
        steps=(
            ("groups", "*", "each", "children"),
            ("#0", "-", "ill", "children"),
            ("#1", "+", "guests", "children"),
            ("#2", "+", "teachers", "people"),
        ),
        question="How many people are there today?",
    ),
    "tower": PlainTemplate(
        people=2,
        numbers={
            "red": (3, 9),
            "blue": (3, 9),
            "layers": (2, 4),
            "each": (2, 6),
            "fall": (2, 6),
        },
        sentences=(
            ("{name} builds a tower of {red} red and {blue} blue blocks.",),
            (
                "{other} puts {layers} layers of {each} blocks on top. Then {fall} blocks fall "
                "down.",
            ),
        ),
        steps=(
            ("red", "+", "blue", "blocks"),
            ("layers", "*", "each", "blocks on top"),
            ("#0", "+", "#1", "blocks"),
            ("#2", "-", "fall", "blocks"),
        ),
        question="How many blocks are in the tower?",
    ),
    "meadow": PlainTemplate(
        numbers={
            "a": (2, 5),
            "b": (3, 6),
            "c": (2, 5),
            "d": (2, 6),
            "eaten": (2, 6),
            "opened": (2, 6),
        },
        sentences=(
            ("On a meadow {a} plants have {b} flowers each and {c} plants have {d} flowers each.",),
            ("A goat eats {eaten} of the flowers.", "{eaten} of the flowers fade."),
            ("Overnight {opened} new ones open.",),
        ),
        steps=(
            ("a", "*", "b", "flowers"),
            ("c", "*", "d", "flowers"),
            ("#0", "+", "#1", "flowers in all"),
            ("#2", "-", "eaten", "flowers"),
            ("#3", "+", "opened", "flowers"),
        ),
        question="How many flowers are on the meadow?",
    ),
}


def generate_problems(count: int, *, seed: int, held_out: bool) -> list[WorkedProblem]:
    """Draw `count` distinct problems with worked solutions, taking the templates in turn.

    Args:
        count: number of problems, at most 1,000. Every template has enough distinct problems for
            this number.
        seed: random seed. The problems depend only on (seed, held_out, count).
        held_out: True takes the templates of `HELD_OUT`, False those of `TRAINED`.
    """
    templates_by_name = HELD_OUT if held_out else TRAINED
    templates = list(templates_by_name)
    rng, problems = Random(f"{seed}/{held_out}"), dict[str, WorkedProblem]()
    while len(problems) < count:
        name = templates[len(problems) % len(templates)]
        worked = replace(templates_by_name[name](rng), template=name)
        problems.setdefault(worked.problem, worked)
    return list(problems.values())
