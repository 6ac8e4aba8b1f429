"""Units of measure and nouns behind a number.

Products, quotients and powers of the units of `unit_table`, with their prefixes; or a noun.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from mclabel.answers.values.unit_table import PREFIXED_NAMES, PREFIXED_SIGNS, PREFIXES, TABLE

Dimension = frozenset[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Unit:
    """A multiple of a product of base units, or a noun that is counted."""

    dimension: Dimension
    factor: Fraction
    offset: Fraction = Fraction(0)
    """Added after scaling: of temperatures."""

    @property
    def is_counted(self) -> bool:
        """Whether this is a noun: things, or a unit that the table does not have."""
        return any(name.startswith("noun ") for name, _ in self.dimension)


_TEMPERATURE = (("kelvin", 1),)
_TEMPERATURES = {
    **dict.fromkeys(("°c", "celsius", "centigrade"), (Fraction(1), Fraction(27315, 100))),
    **dict.fromkeys(("°f", "fahrenheit"), (Fraction(5, 9), Fraction(45967, 180))),
    "kelvin": (Fraction(1), Fraction(0)),
}
_BY_NAME: dict[str, Unit] = {}
for _names, _factor, _dimension in TABLE:
    for _name in _names.split():
        _unit = Unit(frozenset(_dimension), Fraction(_factor))
        _BY_NAME[_name] = _unit
        if len(_name) > 1:
            _BY_NAME.setdefault(_name + "s", _unit)

for _name in ("K", "kelvin", "kelvins", "celsius"):
    _BY_NAME[_name] = Unit(frozenset(_TEMPERATURE), Fraction(1))
_SI_WORDS = frozenset(
    (
        *("kg", "h", "hour", "hours"),
        *PREFIXED_SIGNS,
        *PREFIXED_NAMES,
        *(f"{name}s" for name in PREFIXED_NAMES),
        *(f"{prefix}{sign}" for prefix in "kcmun" for sign in PREFIXED_SIGNS),
    )
)
"""Units that may stand side by side in a product: `kg m`, `newton meters`, `kilowatt hours`."""
_DIVISORS = frozenset(("K", "s", "mol"))
"""What stands behind another unit below a fraction bar: J/gK, W/mK, J/kgK."""
_AMBIGUOUS = frozenset("m g s h l L in N J W V A C D F T H K M".split())
"""Units that are also variables or words: read as units only after a space."""
_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_AFTER_POWERS = {"squared": 2, "cubed": 3}
_MULTIPLIERS = {
    "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12,
    "dozen": 12,
}  # fmt: skip
_STOP = frozenset("and or to plus minus times if when not no is are".split())
_PLACES = frozenset(
    "ten tenth hundredth thousandth half halve third quarter fourth fifth sixth eighth".split()
)
"""Multiples and parts of one, which are no things."""
_POWER = r"\^\s*+(?:\{\s*+-?\d\s*+\}|-?\d)"
_WORD = re.compile(rf"[A-Za-z]++|[°€£¥¢$%/*()]|{_POWER}")
_DEGREES_OF = re.compile(r"°\s*+([CF])\b")
_WHOLE = re.compile(rf"(?:[\s.A-Za-z°€£¥¢$%/*()-]|\\ |{_POWER})++")


@lru_cache(maxsize=4096)
def read_unit(text: str) -> tuple[int, Unit | None] | None:
    """A multiplier such as `million` and the unit or noun that a phrase names.

    Args:
        text: what stands behind the number, its leading space included.

    Returns:
        None if the text is not a unit. The unit is None where only a multiplier or a generic
        "units" stands there.
    """
    if len(text) > 60 or not _WHOLE.fullmatch(text):
        return None
    text = text.replace("per cent", "percent")
    words = _apart(_WORD.findall(_DEGREES_OF.sub(_temperature_name, text).replace("-lb", "*lb")))
    multiplier = 1
    while words and words[0].lower() in _MULTIPLIERS:
        multiplier *= _MULTIPLIERS[words.pop(0).lower()]
    if not words:
        return (multiplier, None) if multiplier > 1 else None
    if words[0] in _AMBIGUOUS and not text.startswith(" "):
        return None
    unit = _temperature(words)
    if unit is None:
        for end in range(len(words), 0, -1):
            unit = _product(words[:end])
            if unit and all(_is_remark(word) for word in words[end:]):
                break
            unit = None
    if unit is None:
        unit = _noun(words)
    if unit is None:
        return None
    if unit.dimension and next(iter(unit.dimension))[0] == "unit":
        return multiplier, None
    return multiplier, unit


def currency(sign: str) -> Unit:
    """The unit of `$`, `€`, `£` or `¥`."""
    return _BY_NAME[sign]


def symbol_unit(dimension: str) -> Unit:
    """The unit of `percent` or `degree`."""
    return _BY_NAME[dimension]


def _temperature_name(match: re.Match[str]) -> str:
    return " celsius" if match[1] == "C" else " fahrenheit"


def _temperature(words: list[str]) -> Unit | None:
    rest = [w for w in words if w.lower() not in ("degree", "degrees", "°")]
    if rest == ["K"]:
        rest = ["kelvin"]
    if len(rest) != 1 or rest[0].lower() not in _TEMPERATURES:
        return None
    factor, offset = _TEMPERATURES[rest[0].lower()]
    return Unit(frozenset(_TEMPERATURE), factor, offset)


def _product(words: list[str]) -> Unit | None:
    """Units multiplied and divided: `miles per hour`, `cm^2`, `square feet`, `m/s^2`."""
    dimension: dict[str, int] = {}
    factor = Fraction(1)
    sign, power, last, near = 1, 1, None, False
    for place, word in enumerate(words):
        lower = word.lower()
        if lower in ("per", "/"):
            sign, last, near = -1, None, False
        elif word in "*()":
            last, near = None, False
            sign = 1 if word == ")" else sign
        elif lower in _POWERS:
            power = _POWERS[lower]
        elif word[0] == "^" or lower in _AFTER_POWERS:
            exponent = _AFTER_POWERS.get(lower) or int(word.strip("^{} "))
            if last is None:
                return None
            factor *= last.factor ** (sign * (exponent - 1))
            for base, n in last.dimension:
                dimension[base] = dimension.get(base, 0) + sign * n * (exponent - 1)
            last = None
        else:
            unit = _below(word) if sign < 0 else _named(word)
            if unit is None or (near and not _stands_beside(word, words[place + 1 :])):
                return None
            factor *= unit.factor ** (sign * power)
            for base, n in unit.dimension:
                dimension[base] = dimension.get(base, 0) + sign * power * n
            last, power, near = unit, 1, True
    if power != 1 or not dimension:
        return None
    return Unit(frozenset((base, n) for base, n in dimension.items() if n), factor)


def _named(word: str) -> Unit | None:
    """The unit of that name, with a prefix where it takes one: `kPa`, `microseconds`."""
    unit = _BY_NAME.get(word)
    if unit is not None:
        return unit
    for size in (1, 4, 5):
        exponent = PREFIXES.get(word[:size].lower() if size > 1 else word[:1])
        if exponent is None:
            continue
        rest = word[size:].lower() if size > 1 else word[1:]
        known = rest.removesuffix("s") in PREFIXED_NAMES if size > 1 else rest in PREFIXED_SIGNS
        base = _BY_NAME.get(rest.lower() if rest == "Ohm" else rest)
        if known and base is not None:
            return Unit(base.dimension, base.factor * Fraction(10) ** exponent)
    if word[0] == "K" and word[1:] in PREFIXED_SIGNS:
        return _named(f"k{word[1:]}")
    return _BY_NAME.get(word.lower()) if len(word) > 1 else None


def _stands_beside(word: str, behind: list[str]) -> bool:
    """Whether a unit may follow another without a sign: `kg m`, `K MPa^{-1}`."""
    return word in _SI_WORDS or (bool(behind) and behind[0].startswith(("^{-", "^-")))


def _apart(words: list[str]) -> list[str]:
    """The words, with units apart that were run together before a power: `JK^{-1}`."""
    found: list[str] = []
    for word, behind in zip(words, [*words[1:], ""], strict=True):
        if behind[:1] == "^" and word.isalpha() and _named(word) is None:
            for cut in range(1, len(word)):
                if _named(word[:cut]) and word[cut:] in PREFIXED_SIGNS:
                    found.append(word[:cut])
                    word = word[cut:]
                    break
        found.append(word)
    return found


def _below(word: str) -> Unit | None:
    """A unit below a fraction bar, where mK is a metre times a kelvin."""
    if word == "mK":
        return _run_together(word)
    return _named(word) or _run_together(word)


def _run_together(word: str) -> Unit | None:
    """Two units below a fraction bar without a sign between them: the `gK` of `J/gK`."""
    for cut in range(1, len(word)):
        first, second = word[:cut], word[cut:]
        if first in _SI_WORDS | {"g"} and second in _DIVISORS:
            left, right = _BY_NAME[first], _BY_NAME[second]
            dimension = dict(left.dimension)
            for base, n in right.dimension:
                dimension[base] = dimension.get(base, 0) + n
            return Unit(frozenset(dimension.items()), left.factor * right.factor)
    return None


def _is_remark(word: str) -> bool:
    return word.isalpha() and len(word) > 1 and word.lower() not in {"per", *_STOP}


def _noun(words: list[str]) -> Unit | None:
    """Things that are counted: any plain words, compared by the last without its plural."""
    if not all(w.isalpha() and (len(w) > 2 or w in ("of", "in")) for w in words) or len(words) > 5:
        return None
    if any(w.lower() in _STOP for w in words) or _singular(words[0].lower()) in _PLACES:
        return None
    stem = words[0].lower()
    for word in words[1:]:
        if word.lower() in ("of", "in", "per", "each", "total", "altogether", "left", "more"):
            break
        stem = word.lower()
    return Unit(frozenset(((f"noun {_singular(stem)}", 1),)), Fraction(1))


def _singular(word: str) -> str:
    for plural, singular in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch")):
        if word.endswith(plural):
            return word.removesuffix(plural) + singular
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word
