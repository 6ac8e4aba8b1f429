"""Counts what makes a package hard to live in, from its syntax trees: `make house`.

    python scripts/house.py              # this checkout; ends with 1 where a bar is missed
    python scripts/house.py --details    # and names what each figure counts
    python scripts/house.py --root ../before --root .    # two checkouts, side by side

Nothing is imported, so that any checkout can be counted. The modules `house_*` beside this one do
the counting. What each figure is:

settings_declared_twice (bar 0)
    Pairs of places that declare the same settings. A place is a settings model (a class named
    `Settings`, `*Settings` or `*Config`, or derived from one or from pydantic's `BaseModel`),
    another class with annotated fields, or the parameters of a function. Two settings are the same
    if name and default are (and the type, between two models). Fields without a default, and
    fields that nest another model, do not count: these are how a configuration is put together. A
    pair counts from three settings on, if one of the two is a model, neither inherits from the
    other, and a function, or a class that is no model, repeats a model of its own room or of
    `config`.
choices_declared_twice (bar 0)
    Sets of two words or more that stand in two `Literal`s.
package_circles (bar 0)
    Groups of rooms (folders and files at the package's top level) that import each other. Imports
    inside functions and under TYPE_CHECKING count, too. The package's own `__init__`, which offers
    what stands in the rooms, is left out.
module_circles (bar 0)
    Groups of modules that import each other while they are imported. `from a import b` is an
    import of `a.b` where that is a module, else of `a`.
lazy_circles (bar 0)
    As `module_circles`, and imports inside functions and under TYPE_CHECKING count, too.
second_level_circles (bar 0)
    Groups of parts of one room that import each other, if two of them or more are folders
    (`data/readers` and `data/shards`). A room's parts are the folders and files in it. Imports
    inside functions and under TYPE_CHECKING count, too. What an `__init__` imports does not count
    if that file only offers what stands elsewhere.
long_functions (bar 0)
    Functions and methods of more than 80 lines, from `def` to the last line.
files_over_400_lines (bar 0)
    Python files of the package, and of the folder `scripts` beside it, that have more lines.
names_outside_their_room (bar 0)
    Places outside `engines/` (in older checkouts `policy/`) or `estimators/` that ask for one of
    its built-in components by name: `==`, `!=`, `in` and `match` with its name, `isinstance` of
    its class, and a dict or a `Literal` of two names or more. A name that is also a field of a
    record (`posterior`, `outcome`, `first_error`) counts where it is compared with something that
    is called kind, engine or estimator. The source of a label is no estimator, whatever its word.
files_an_estimator_touches (bar 1)
    Files that list the estimator `sequential` or its class, its own file left out: by its name as a
    word, by `module:Class`, or by the class. Making its settings, `SequentialEstimator.Settings()`,
    is the use of it that anyone may make, and does not count.
documented_percent (bar 95)
    Public functions and methods that have a docstring of their own, in %. Left out are overloads,
    setters of properties, functions inside functions, and what a private class holds.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from house_components import files_touched, named_outside
from house_declarations import choices_declared_twice, declared_twice
from house_documented import undocumented
from house_imports import (
    lazy_circles,
    module_circles,
    package_circles,
    room_graph,
    second_level_circles,
)
from house_lengths import long_files, long_functions
from house_modules import PACKAGE, read

ROOT = Path(__file__).resolve().parents[1]
MOST = {
    "settings_declared_twice": 0,
    "choices_declared_twice": 0,
    "package_circles": 0,
    "module_circles": 0,
    "lazy_circles": 0,
    "second_level_circles": 0,
    "long_functions": 0,
    "files_over_400_lines": 0,
    "names_outside_their_room": 0,
    "files_an_estimator_touches": 1,
}
LEAST = {"documented_percent": 95.0}


@dataclass(frozen=True)
class Figure:
    """One count, and what makes it up."""

    value: float
    found: Sequence[str] = field(repr=False)


def measure(package: Path) -> dict[str, Figure]:
    """All figures of a package.

    Args:
        package: its folder.
    """
    modules = read(package)
    counted = {
        "settings_declared_twice": declared_twice(modules),
        "choices_declared_twice": choices_declared_twice(modules),
        "package_circles": package_circles(modules),
        "module_circles": module_circles(modules),
        "lazy_circles": lazy_circles(modules),
        "second_level_circles": second_level_circles(modules),
        "long_functions": long_functions(modules),
        "files_over_400_lines": long_files(package),
        "names_outside_their_room": named_outside(modules),
        "files_an_estimator_touches": files_touched(modules),
    }
    figures = {name: Figure(len(found), found) for name, found in counted.items()}
    num_public, without = undocumented(modules)
    share = 100 * (1 - len(without) / num_public) if num_public else 100.0
    figures["documented_percent"] = Figure(round(share, 1), without)
    return figures


def missed(figures: Mapping[str, Figure]) -> list[str]:
    """Names of the figures that miss their bar."""
    return [name for name, most in MOST.items() if figures[name].value > most] + [
        name for name, least in LEAST.items() if figures[name].value < least
    ]


def main() -> int:
    """Print the figures; 1 where this checkout misses a bar."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--root", type=Path, action="append", help="a checkout, or its package")
    parser.add_argument("--details", action="store_true", help="name what each figure counts")
    parser.add_argument("--graph", action="store_true", help="print which room imports which")
    parser.add_argument("--json", action="store_true", help="print figures as JSON alone")
    arguments = parser.parse_args()
    packages = [_package(root) for root in arguments.root or [ROOT]]
    if arguments.graph:
        for room, others in sorted(room_graph(read(packages[-1])).items()):
            print(f"{room}: {', '.join(sorted(others)) or '-'}")
        return 0
    columns = [measure(package) for package in packages]
    if arguments.json:
        print(json.dumps([{n: f.value for n, f in figures.items()} for figures in columns]))
    else:
        _show(columns, details=arguments.details)
    return 1 if missed(columns[-1]) else 0


def _show(columns: Sequence[Mapping[str, Figure]], *, details: bool) -> None:
    short_of_bar = missed(columns[-1])
    for name, last in columns[-1].items():
        bar = f"<= {MOST[name]}" if name in MOST else f">= {LEAST[name]:g}"
        values = "".join(f"{figures[name].value:>8g}" for figures in columns)
        print(f"{name:28}{values}   {bar}{'   MISSED' if name in short_of_bar else ''}")
        if details or name in short_of_bar:
            for line in last.found if details else last.found[:5]:
                print(f"    {line}")


def _package(root: Path) -> Path:
    package = root / PACKAGE if (root / PACKAGE).is_dir() else root
    if not (package / "__init__.py").is_file():
        sys.exit(f"{root}: holds no package {PACKAGE}")
    return package


if __name__ == "__main__":
    sys.exit(main())
