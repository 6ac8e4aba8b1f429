"""Endless hostile pairs: attacks on the patterns, English, golds, and formulas that grow.

The benchmark tries a million pairs, and a test tries some of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from tests.answers.test_hostile import bombs
from tests.answers.test_linear import PATTERNS
from tests.support.attacks import Attack, attacks

_WORDS = (
    "the a an of in on at to for and or but not no is are was were be been has have had it this "
    "that there list three coordinate values under matrix invertible because determinant equals "
    "apples other fruits left over all positive integers divisible by real solutions since number "
    "least most greater less than between sum product answer final value hours minutes miles per "
    "hour square feet dollars cents percent degrees first second third yes none undefined infinity "
    "wait actually correction sorry instead therefore so option choice base times half thousand"
).split()
_ATOMS = (
    "x y z a b n 1 2 3 7 12 99 0.5 1.25 100 1000 99999 π e i \\pi \\sqrt{2} \\theta x^2 3x "
    "\\frac{1}{2} \\infty 5\\text{ cm} 50\\% (A) 2\\pi k"
).split(" ")
_SHAPES = (
    "({0}+{1})^{{{n}}}", "({0})({1})", "\\frac{{{0}}}{{{1}}}", "\\sqrt{{{0}+{1}}}", "{0}^{{{1}}}",
    "\\sqrt[{n}]{{{0}}}", "({0}-{1})({0}+{1})", "\\sin({0})", "\\cos^{n}({0})", "\\ln({0})",
    "\\log_{n}({0})", "|{0}-{1}|", "{0}!", "\\binom{{{0}}}{{{1}}}", "({0},{1})", "{0},{1}",
    "{0}={1}", "{0}<{1}", "{0} \\cup {1}", "\\{{{0},{1}\\}}", "[{0},{1})", "{0} or {1}",
    "{0} and {1}", "{0}:{1}", "\\lfloor {0} \\rfloor", "e^{{{0}}}", "{0}\\pm{1}", "{0}_{{{n}}}",
    "\\begin{{pmatrix}}{0}&{1}\\\\{1}&{0}\\end{{pmatrix}}", "-{0}", "{0}/{1}", "{0} {1}",
    "\\gcd({0},{1})", "{0} \\bmod {1}", "\\sum_{{k=1}}^{{{n}}} {0}", "\\left({0}\\right)^{n}",
)  # fmt: skip


def hostile_pairs(seed: int, golds: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield endless pairs (answer or completion, gold), which depend only on the arguments.

    Args:
        seed: random seed of the pairs.
        golds: real golds, which also serve as answers.
    """
    rng = random.Random(seed)
    drawn = [attack for one in PATTERNS for attack in attacks(one.pattern, number=60)]
    corpus = bombs()
    while True:
        kind = rng.random()
        if kind < 0.4:
            text = _attacked(rng, drawn)
        elif kind < 0.6:
            text = _sentence(rng)
        elif kind < 0.75:
            text = rng.choice(golds)
        elif kind < 0.98:
            text = _formula(rng, rng.randint(1, 6))
        else:
            text = rng.choice(corpus)
        gold = rng.choice(golds) if rng.random() < 0.7 else _formula(rng, rng.randint(1, 4))
        yield (text, gold) if rng.random() < 0.9 else (gold, text)


def _attacked(rng: random.Random, drawn: Sequence[Attack]) -> str:
    text = rng.choice(drawn).text(rng.choice((20, 60, 200, 500, 990)))
    if rng.random() < 0.3:
        place = rng.randint(0, len(text))
        text = text[:place] + rng.choice(drawn).text(rng.choice((5, 30, 200))) + text[place:]
    return text


def _sentence(rng: random.Random) -> str:
    words = [
        str(rng.randint(-9, 2000)) if rng.random() < 0.12 else rng.choice(_WORDS)
        for _ in range(rng.randint(5, 60))
    ]
    return " ".join(words) + rng.choice(("", ".", "!", "?"))


def _formula(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.1:
        return rng.choice(_ATOMS)
    one, other = (_formula(rng, depth - 1) for _ in range(2))
    return rng.choice(_SHAPES).format(one, other, n=rng.choice((2, 3, 5, 9, 20, 40, 99)))[:1000]
