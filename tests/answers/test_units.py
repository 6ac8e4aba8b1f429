"""The table of units compared with pint, and phrases that name units."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from mclabel.answers.values.units import (
    _TEMPERATURES,
    PREFIXED_NAMES,
    PREFIXED_SIGNS,
    PREFIXES,
    TABLE,
    read_multiplier_and_unit,
)

_PINT_NAMES = {"hz": "hertz", "in": "inch", "au": "astronomical_unit"}
_NOT_IN_PINT = {"$", "€", "£", "¥", "%", "°", "cent", "rupee", "unit", "radian", "decade", "acre"}
"""Units that pint lacks or defines otherwise. In pint, `decade` is a number, and `acre` uses the US
survey foot."""
_BASE = {
    **{"m": "meter", "kg": "kilogram", "s": "second", "month": "month"},
    **{"A": "ampere", "mol": "mole", "kelvin": "kelvin"},
}


@pytest.fixture(scope="module")
def registry() -> Any:
    """Return pint's units, with exact fractions as numbers."""
    return pytest.importorskip("pint").UnitRegistry(non_int_type=Fraction)


@pytest.mark.parametrize("row", [r for r in TABLE if r[0].split()[0] not in _NOT_IN_PINT])
def test_factors_are_those_of_pint(
    row: tuple[str, str, tuple[tuple[str, int], ...]], registry: Any
) -> None:
    names, factor, dimension = row
    first = names.split()[0]
    base = "*".join(f"{_BASE[unit]}**{power}" for unit, power in dimension)
    converted = registry.Quantity(Fraction(1), _PINT_NAMES.get(first, first)).to(base)
    assert converted.magnitude == Fraction(factor)


def test_an_acre_is_of_the_international_foot() -> None:
    factors = {row[0].split()[0]: Fraction(row[1]) for row in TABLE}
    assert factors["acre"] == 43_560 * factors["ft"] ** 2


def test_temperatures() -> None:
    factor, offset = _TEMPERATURES["fahrenheit"]
    assert 32 * factor + offset == Fraction(27315, 100)
    assert 212 * factor + offset == Fraction(37315, 100)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (" cm", " centimeters"),
        (" square feet", " ft^2"),
        (" sq. in.", " inches squared"),
        (" miles per hour", " mph"),
        (" m/s^2", " meters per second squared"),
        (" cubic centimeters", " cm^{3}"),
        ("°C", " degrees Celsius"),
        (" dogs", " dog"),
        (" cm long", " cm"),
        (" blue dogs", " dogs"),
    ],
)
def test_phrases_of_one_unit(first: str, second: str) -> None:
    assert read_multiplier_and_unit(first) == read_multiplier_and_unit(second) is not None


@pytest.mark.parametrize("text", ["m", "x", " x", "cm + 1", " and 5", " or more", ""])
def test_no_units(text: str) -> None:
    assert read_multiplier_and_unit(text) is None


COMPOUND = [
    *("kg m/s^2", "N m", "J/(kg K)", "W/(m^2 K^4)", "kg/m^3", "g/cm^3", "mol/L", "kJ/mol", "m/s"),
    *("km/h", "V/m", "N/C", "kPa", "MPa", "MeV", "GHz", "uF", "mA", "nC", "kcal", "mmol", "kohm"),
    *("kilowatt hour", "newton meter", "microsecond", "m s^-1", "kg m^2 s^-2", "cm^2/s", "mT"),
]


@pytest.mark.parametrize("text", COMPOUND)
def test_compound_and_prefixed_units_are_those_of_pint(text: str, registry: Any) -> None:
    unit_read = read_multiplier_and_unit(f" {text}")
    assert unit_read is not None and unit_read[1] is not None
    base = "*".join(f"{_BASE[unit]}**{power}" for unit, power in unit_read[1].dimension)
    written = text.replace(" ", "*")
    assert registry.Quantity(Fraction(1), written).to(base).magnitude == unit_read[1].factor


@pytest.mark.parametrize("name", sorted(PREFIXED_SIGNS | PREFIXED_NAMES))
def test_prefixes_are_powers_of_ten(name: str) -> None:
    bare = read_multiplier_and_unit(f" {name}")
    for prefix, exponent in PREFIXES.items():
        if (len(prefix) > 1) != (name in PREFIXED_NAMES) or prefix + name in ("cd", "min", "pt"):
            continue
        unit_read = read_multiplier_and_unit(f" {prefix}{name}")
        assert unit_read is not None and unit_read[1] is not None, prefix
        if name in ("K", "kelvin") or prefix + name in ("ha", "hm", "Pa", "dB", "ft", "au"):
            continue
        assert bare is not None and bare[1] is not None
        assert unit_read[1].factor == bare[1].factor * Fraction(10) ** exponent, prefix
