"""How large a benchmark is, chosen on its command line, and how it says that it cannot run.

Every benchmark takes `--smoke` or `--quick`, or neither for its full size. At the smoke size a
benchmark goes through all of its code as fast as it can, and its figures mean nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import NoReturn, TypeVar

NOT_RUN = 77
"""Exit code of a benchmark that needs what this machine lacks."""
DISCLAIMER = "--smoke: this run goes through the code; its figures mean nothing."

DATA = Path(os.environ.get("MCLABEL_TEST_DATA", Path(__file__).parents[3] / "shared" / "data"))
"""Folder of the public data; where there is none, what reads it is left out."""

T = TypeVar("T")


class BenchmarkSize(StrEnum):
    """How much a benchmark measures."""

    SMOKE = "smoke"
    QUICK = "quick"
    FULL = "full"

    def pick(self, *, smoke: T, quick: T, full: T) -> T:
        """The value of this size."""
        return {BenchmarkSize.SMOKE: smoke, BenchmarkSize.QUICK: quick, BenchmarkSize.FULL: full}[
            self
        ]


class SizedParser(argparse.ArgumentParser):
    """A parser whose result has a `size`; it prints a disclaimer for the smoke size."""

    def __init__(self, doc: str | None) -> None:
        """Take the description from the first line of a benchmark's docstring."""
        super().__init__(description=(doc or "").partition("\n")[0])
        sizes = self.add_mutually_exclusive_group()
        for size, meaning in (
            (BenchmarkSize.SMOKE, "all of the code at the smallest size: figures mean nothing"),
            (BenchmarkSize.QUICK, "fewer and smaller measurements, for minutes on two cores"),
        ):
            sizes.add_argument(
                f"--{size}", dest="size", action="store_const", const=size, help=meaning
            )
        self.set_defaults(size=BenchmarkSize.FULL)

    def read(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """The parsed command line, of which `size` is a `BenchmarkSize`."""
        args = self.parse_args(arguments)
        if args.size is BenchmarkSize.SMOKE:
            print(DISCLAIMER, flush=True)
        return args


def need(package: str, *, remedy: str) -> None:
    """End the benchmark as not run where a package is not installed.

    Args:
        package: name of the module, without dots.
        remedy: the command that installs it.

    Raises:
        SystemExit: with `NOT_RUN`, after one line that gives the reason.
    """
    if importlib.util.find_spec(package) is None:
        not_run(f"The package {package} is not installed. Install it with {remedy}")


def not_run(reason: str) -> NoReturn:
    """End the benchmark as not run, with one line that gives the reason.

    Raises:
        SystemExit: with `NOT_RUN`.
    """
    print(reason, flush=True)
    sys.exit(NOT_RUN)
