"""Units of measure: their names, exact factors and dimensions.

A test holds each factor against pint's. pint itself is not asked at run time: its parser takes
words such as "points", "grades" or "turns" for units, and takes half a second to load into every
process that grades.
"""

from __future__ import annotations

_METRE, _KILOGRAM, _SECOND, _MONTH = (("m", 1),), (("kg", 1),), (("s", 1),), (("month", 1),)
_AREA, _VOLUME, _SPEED = (("m", 2),), (("m", 3),), (("m", 1), ("s", -1))
_FORCE, _ENERGY = (("kg", 1), ("m", 1), ("s", -2)), (("kg", 1), ("m", 2), ("s", -2))
_PRESSURE = (("kg", 1), ("m", -1), ("s", -2))

TABLE: tuple[tuple[str, str, tuple[tuple[str, int], ...]], ...] = (
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
"""Powers of ten."""
PREFIXED_SIGNS = frozenset("m g s A K mol N J W Pa V F C T Wb H Hz eV L l bar cal ohm Ohm".split())
PREFIXED_NAMES = frozenset(
    "meter metre gram second ampere amp kelvin mole newton joule watt pascal volt farad coulomb "
    "tesla weber henry hertz electronvolt liter litre calorie ohm".split()
)
