"""Parser of the unit or noun after a number.

A unit is a product, quotient or power of units of `TABLE` with their prefixes. Any other plain
words are a noun, the name of counted things.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

_METRE, _KILOGRAM, _SECOND, _MONTH = (("m", 1),), (("kg", 1),), (("s", 1),), (("month", 1),)
_AREA, _VOLUME, _SPEED = (("m", 2),), (("m", 3),), (("m", 1), ("s", -1))
_FORCE, _ENERGY = (("kg", 1), ("m", 1), ("s", -2)), (("kg", 1), ("m", 2), ("s", -2))
# A test compares each factor of the table with pint's. pint itself is not used at run time, because
# its parser reads words such as "points", "grades" or "turns" as units, and because it takes half a
# second to load in every process that grades.

_PRESSURE = (("kg", 1), ("m", -1), ("s", -2))

TABLE: tuple[tuple[str, str, tuple[tuple[str, int], ...]], ...] = (
    # names, exact factor to the base units, exponents of the base units
    ("m meter metre", "1", _METRE),
    ("cm centimeter centimetre", "1/100", _METRE),
    ("mm millimeter millimetre", "1/1000", _METRE),
    ("dm decimeter decimetre", "1/10", _METRE),
    ("km kilometer kilometre", "1000", _METRE),
    ("in inch inches", "127/5000", _METRE),
    ("ft foot feet", "381/1250", _METRE),
    ("yd yard", "1143/1250", _METRE),
    ("mi mile", "201168/125", _METRE),
    ("kg kilogram kilo", "1", _KILOGRAM),
    ("g gram gm", "1/1000", _KILOGRAM),
    ("mg milligram", "1/1000000", _KILOGRAM),
    ("lb pound", "45359237/100000000", _KILOGRAM),
    ("oz ounce", "45359237/1600000000", _KILOGRAM),
    ("tonne", "1000", _KILOGRAM),
    ("s sec second", "1", _SECOND),
    ("ms millisecond", "1/1000", _SECOND),
    ("min minute", "60", _SECOND),
    ("h hr hour", "3600", _SECOND),
    ("day", "86400", _SECOND),
    ("week wk", "604800", _SECOND),
    ("month", "1", _MONTH),
    ("year yr", "12", _MONTH),
    ("decade", "120", _MONTH),
    ("century centuries", "1200", _MONTH),
    ("acre", "316160658/78125", _AREA),
    ("ha hectare", "10000", _AREA),
    ("L l liter litre", "1/1000", _VOLUME),
    ("mL ml milliliter millilitre cc", "1/1000000", _VOLUME),
    ("gal gallon", "473176473/125000000000", _VOLUME),
    ("qt quart", "473176473/500000000000", _VOLUME),
    ("pt pint", "473176473/1000000000000", _VOLUME),
    ("cup", "473176473/2000000000000", _VOLUME),
    ("mph", "1397/3125", _SPEED),
    ("kph kmph kmh", "5/18", _SPEED),
    ("newton N", "1", _FORCE),
    ("dyne", "1/100000", _FORCE),
    ("joule J", "1", _ENERGY),
    ("calorie cal", "523/125", _ENERGY),
    ("eV electronvolt", "801088317/5000000000000000000000000000", _ENERGY),
    ("erg", "1/10000000", _ENERGY),
    ("kWh", "3600000", _ENERGY),
    (
        "debye D",
        "1/299792458000000000000000000000",
        (("A", 1), ("m", 1), ("s", 1)),
    ),
    ("watt W", "1", (("kg", 1), ("m", 2), ("s", -3))),
    ("pascal Pa", "1", _PRESSURE),
    ("bar", "100000", _PRESSURE),
    ("atm atmosphere", "101325", _PRESSURE),
    ("torr Torr", "20265/152", _PRESSURE),
    ("hz Hz hertz", "1", (("s", -1),)),
    ("ampere amp A", "1", (("A", 1),)),
    ("molar M", "1000", (("m", -3), ("mol", 1))),
    ("coulomb C", "1", (("A", 1), ("s", 1))),
    ("volt V", "1", (("kg", 1), ("m", 2), ("s", -3), ("A", -1))),
    ("ohm", "1", (("kg", 1), ("m", 2), ("s", -3), ("A", -2))),
    ("farad F", "1", (("kg", -1), ("m", -2), ("s", 4), ("A", 2))),
    ("henry H", "1", (("kg", 1), ("m", 2), ("s", -2), ("A", -2))),
    ("weber Wb", "1", (("kg", 1), ("m", 2), ("s", -2), ("A", -1))),
    ("tesla T", "1", (("kg", 1), ("s", -2), ("A", -1))),
    ("mole mol", "1", (("mol", 1),)),
    ("angstrom", "1/10000000000", _METRE),
    ("ly lightyear", "9460730472580800", _METRE),
    ("au", "149597870700", _METRE),
    ("knot", "463/900", _SPEED),
    ("$ dollar usd buck", "1", (("dollar", 1),)),
    ("cent ¢", "1/100", (("dollar", 1),)),
    ("€ euro eur", "1", (("euro", 1),)),
    ("£ gbp", "1", (("sterling", 1),)),
    ("¥ yen", "1", (("yen", 1),)),
    ("rupee rs", "1", (("rupee", 1),)),
    ("% percent pct percentage", "1", (("percent", 1),)),
    ("° degree deg", "1", (("degree", 1),)),
    ("radian rad", "1", (("radian", 1),)),
    ("unit", "1", (("unit", 1),)),
)

PREFIXES = {
    **{"T": 12, "G": 9, "M": 6, "k": 3, "d": -1, "c": -2, "m": -3, "u": -6, "n": -9, "p": -12},
    **{"f": -15, "h": 2},
    **{"tera": 12, "giga": 9, "mega": 6, "kilo": 3, "hecto": 2, "deci": -1, "centi": -2},
    **{"milli": -3, "micro": -6, "nano": -9, "pico": -12, "femto": -15},
}
"""Exponents of ten by prefix."""
PREFIXED_SIGNS = frozenset("m g s A K mol N J W Pa V F C T Wb H Hz eV L l bar cal ohm Ohm".split())
PREFIXED_NAMES = frozenset(
    "meter metre gram second ampere amp kelvin mole newton joule watt pascal volt farad coulomb "
    "tesla weber henry hertz electronvolt liter litre calorie ohm".split()
)


Dimension = frozenset[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of measure, or a noun for counted things."""

    dimension: Dimension
    """Pairs of a base unit and its exponent. Counted things have the single base unit `noun …`."""
    factor: Fraction
    """Number of base units in one unit: 1000 for a kilometre."""
    offset: Fraction = Fraction(0)
    """Number that is added after the amount is multiplied by `factor`: 273.15 for °C in kelvins."""

    @property
    def is_counted(self) -> bool:
        """Return whether this is a noun: counted things, or a unit that is not in the table."""
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
"""Units that may follow another unit without a sign: `kg m`, `newton meters`, `kilowatt hours`."""
_DIVISORS = frozenset(("K", "s", "mol"))
"""Units that may follow another unit below a fraction bar: J/gK, W/mK, J/kgK."""
_AMBIGUOUS = frozenset("m g s h l L in N J W V A C D F T H K M".split())
"""Units that are also variables or words. They are read as units only after a space."""
_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_AFTER_POWERS = {"squared": 2, "cubed": 3}
_MULTIPLIERS = {
    "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12,
    "dozen": 12,
}  # fmt: skip
_STOP = frozenset(
    "and or to plus minus times if when not no is are mas menos mais moins mehr weniger demi demie "
    "medio media meio meia oder und halb".split()
)
_PLACES = frozenset(
    "ten tenth hundredth thousandth millionth half halve third quarter fourth fifth sixth seventh "
    "eighth ninth eleventh twelfth thirteenth fourteenth fifteenth sixteenth seventeenth "
    "eighteenth nineteenth twentieth thirtieth fortieth fiftieth".split()
)
"""Words for powers of ten and for fractions, such as `third`. They are not units."""
_POWER = r"\^\s*+(?:\{\s*+-?\d\s*+\}|-?\d)"
LETTERS = r"A-Za-z\u00c0-\u024f\u0400-\u1fff\u3040-\u9fff\uac00-\ud7af"
"""Character ranges for the letters of every script except Greek, which is used in formulas."""
_WORD = re.compile(rf"[{LETTERS}]++|[°€£¥¢$%/*()]|{_POWER}")
_DEGREES_OF = re.compile(r"°\s*+([CF])\b")
_WHOLE = re.compile(rf"(?:[\s.{LETTERS}°€£¥¢$%/*()-]|\\ |{_POWER})++")


@lru_cache(maxsize=4096)
def read_multiplier_and_unit(text: str) -> tuple[int, Unit | None] | None:
    """Parse the text after a number as a multiplier such as `million` and a unit or noun.

    Args:
        text: the text after the number, including its leading space.

    Returns:
        The multiplier and the unit; None if the text is not a unit. The unit is None if the text is
        only a multiplier or the generic word "units".
    """
    if len(text) > 60 or not _WHOLE.fullmatch(text):
        return None
    text = text.replace("per cent", "percent")
    words = _split_joined_units(
        _WORD.findall(
            _DEGREES_OF.sub(
                lambda match: " celsius" if match[1] == "C" else " fahrenheit", text
            ).replace("-lb", "*lb")
        )
    )
    multiplier = 1
    while words and words[0].lower() in _MULTIPLIERS:
        multiplier *= _MULTIPLIERS[words.pop(0).lower()]
    if not words:
        return (multiplier, None) if multiplier > 1 else None
    if words[0] in _AMBIGUOUS and not text.startswith(" "):
        return None
    unit = _read_temperature_unit(words)
    if unit is None:
        for end in range(len(words), 0, -1):
            unit = _read_compound_unit(words[:end])
            if unit and all(
                word.isalpha() and len(word) > 1 and word.lower() not in {"per", *_STOP}
                for word in words[end:]
            ):
                break
            unit = None
    if unit is None:
        unit = _read_counted_things(words)
    if unit is None:
        return None
    if unit.dimension and next(iter(unit.dimension))[0] == "unit":
        return multiplier, None
    return multiplier, unit


def get_currency_unit(sign: str) -> Unit:
    """Return the unit of a currency sign: `$`, `€`, `£` or `¥`."""
    return _BY_NAME[sign]


def _read_temperature_unit(words: list[str]) -> Unit | None:
    rest = [w for w in words if w.lower() not in ("degree", "degrees", "°")]
    if rest == ["K"]:
        rest = ["kelvin"]
    if len(rest) != 1 or rest[0].lower() not in _TEMPERATURES:
        return None
    factor, offset = _TEMPERATURES[rest[0].lower()]
    return Unit(frozenset(_TEMPERATURE), factor, offset)


def _read_compound_unit(words: list[str]) -> Unit | None:
    """Parse products, quotients and powers of units, such as `miles per hour`, `square feet` or
    `m/s^2`; return None if a word is not a unit.
    """
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
            unit = _find_unit_below_fraction_bar(word) if sign < 0 else _find_unit_by_name(word)
            if unit is None or (
                near and not _may_follow_unit_without_sign(word, words[place + 1 :])
            ):
                return None
            factor *= unit.factor ** (sign * power)
            for base, n in unit.dimension:
                dimension[base] = dimension.get(base, 0) + sign * power * n
            last, power, near = unit, 1, True
    if power != 1 or not dimension:
        return None
    return Unit(frozenset((base, n) for base, n in dimension.items() if n), factor)


def _find_unit_by_name(word: str) -> Unit | None:
    """Return the unit with a given name; None if there is none.

    The name may have a prefix, as in `kPa` or `microseconds`.
    """
    unit = _BY_NAME.get(word)
    if unit is not None:
        return unit
    for size in (1, 4, 5):
        exponent = PREFIXES.get(word[:size].lower() if size > 1 else word[:1])
        if exponent is None:
            continue
        rest = word[size:].lower() if size > 1 else word[1:]
        takes_prefix = (
            rest.removesuffix("s") in PREFIXED_NAMES if size > 1 else rest in PREFIXED_SIGNS
        )
        base = _BY_NAME.get(rest.lower() if rest == "Ohm" else rest)
        if takes_prefix and base is not None:
            return Unit(base.dimension, base.factor * Fraction(10) ** exponent)
    if word[0] == "K" and word[1:] in PREFIXED_SIGNS:
        return _find_unit_by_name(f"k{word[1:]}")
    return _BY_NAME.get(word.lower()) if len(word) > 1 else None


def _may_follow_unit_without_sign(unit: str, next_words: list[str]) -> bool:
    """Return whether a unit may follow another unit without a sign, as in `kg m` or
    `K MPa^{-1}`.

    Args:
        unit: name of the second unit.
        next_words: words after it.
    """
    return unit in _SI_WORDS or (bool(next_words) and next_words[0].startswith(("^{-", "^-")))


def _split_joined_units(words: list[str]) -> list[str]:
    """Separate two units that are written as one word before a power, as in `JK^{-1}`."""
    separated: list[str] = []
    for word, behind in zip(words, [*words[1:], ""], strict=True):
        if behind[:1] == "^" and word.isalpha() and _find_unit_by_name(word) is None:
            for cut in range(1, len(word)):
                if _find_unit_by_name(word[:cut]) and word[cut:] in PREFIXED_SIGNS:
                    separated.append(word[:cut])
                    word = word[cut:]
                    break
        separated.append(word)
    return separated


def _find_unit_below_fraction_bar(word: str) -> Unit | None:
    """Return the unit that a word below a fraction bar denotes; None if there is none.

    There, mK is a metre times a kelvin.
    """
    if word == "mK":
        return _read_joined_units(word)
    return _find_unit_by_name(word) or _read_joined_units(word)


def _read_joined_units(word: str) -> Unit | None:
    """Parse a word below a fraction bar that is two units without a sign, such as `gK` in `J/gK`;
    return None for any other word.
    """
    for cut in range(1, len(word)):
        first, second = word[:cut], word[cut:]
        if first in _SI_WORDS | {"g"} and second in _DIVISORS:
            left, right = _BY_NAME[first], _BY_NAME[second]
            dimension = dict(left.dimension)
            for base, n in right.dimension:
                dimension[base] = dimension.get(base, 0) + n
            return Unit(frozenset(dimension.items()), left.factor * right.factor)
    return None


def _read_counted_things(words: list[str]) -> Unit | None:
    """Parse plain words as counted things; return None for other words.

    Counted things are identified by the singular of their main noun, which is the last word before
    "of" or a similar word.
    """
    if not all(map(_may_be_noun, words)) or len(words) > 5:
        return None
    if any(w.lower() in _STOP for w in words) or _to_singular(words[0].lower()) in _PLACES:
        return None
    stem = words[0].lower()
    for word in words[1:]:
        if word.lower() in ("of", "in", "per", "each", "total", "altogether", "left", "more"):
            break
        stem = word.lower()
    return Unit(frozenset(((f"noun {_to_singular(stem)}", 1),)), Fraction(1))


def _may_be_noun(word: str) -> bool:
    """Return whether a word may name counted things. Words that change the number, as in `18多`
    and `18以上`, cannot.
    """
    if not word.isascii():
        return word.isalpha() and not _OTHER_NUMBER.search(word)
    return (word.isalpha() and len(word) > 2) or word in ("of", "in")


_OTHER_NUMBER = re.compile(
    "[半多余餘超几幾数數]|以[上下内內外]|未[満满]|左右|程度|前後|くらい|ぐらい|分[之の]|又|不足|至少|"
    "이상|이하|미만|초과|정도|больше|меньше|более|менее|половин|más|menos|أكثر|أقل|ونصف|"
    "अधिक|कम|ज़्यादा|বেশি|কম|กว่า|ครึ่ง|อย่างน้อย|ఎక్కువ|తక్కువ"
)
"""Words of other languages that make a number inexact or add a fraction to it."""


def _to_singular(word: str) -> str:
    for plural, singular in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch")):
        if word.endswith(plural):
            return word.removesuffix(plural) + singular
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word
