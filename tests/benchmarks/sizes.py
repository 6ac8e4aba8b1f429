"""Sizes of benchmarks, their command-line options, and the exit of benchmarks that cannot run.

Every benchmark takes `--smoke` or `--quick`, or neither for its full size. At the smoke size a
benchmark runs all of its code as fast as it can, and its figures mean nothing.
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
"""Exit code of a benchmark whose requirements are missing on this machine."""
DISCLAIMER = "--smoke: this run only tests the code; its figures mean nothing."

DATA = Path(os.environ.get("MCLABEL_TEST_DATA", Path(__file__).parents[3] / "shared" / "data"))
"""Folder of the public data. If it is missing, the measurements that read it are left out."""

T = TypeVar("T")


class BenchmarkSize(StrEnum):
    """The amount that a benchmark measures."""

    SMOKE = "smoke"
    QUICK = "quick"
    FULL = "full"

    def pick(self, *, smoke: T, quick: T, full: T) -> T:
        """Return the value for this size."""
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
            (
                BenchmarkSize.SMOKE,
                "only test the code, at the smallest size; the figures mean nothing",
            ),
            (BenchmarkSize.QUICK, "make fewer and smaller measurements, in minutes on two cores"),
        ):
            sizes.add_argument(
                f"--{size}", dest="size", action="store_const", const=size, help=meaning
            )
        self.set_defaults(size=BenchmarkSize.FULL)

    def read(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """Return the parsed command line, whose `size` is a `BenchmarkSize`."""
        args = self.parse_args(arguments)
        if args.size is BenchmarkSize.SMOKE:
            print(DISCLAIMER, flush=True)
        return args


def require_package(package: str, *, remedy: str) -> None:
    """End the benchmark as not run if a package is not installed.

    Args:
        package: name of the module, without dots.
        remedy: command that installs the package.

    Raises:
        SystemExit: the package is not installed. The exit code is `NOT_RUN`, after one line with
            the reason.
    """
    if importlib.util.find_spec(package) is None:
        not_run(f"The package {package} is not installed. Install it with {remedy}")


def not_run(reason: str) -> NoReturn:
    """End the benchmark as not run, with one line that gives the reason.

    Raises:
        SystemExit: always, with the exit code `NOT_RUN`.
    """
    print(reason, flush=True)
    sys.exit(NOT_RUN)
