"""Readers that generate the problems of the built-in domains.

`arith` has arithmetic word problems, `pyarith` asks for Python functions that solve them, and
`words` has word problems for small language models.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from mclabel.core.errors import ConfigError
from mclabel.core.records import Problem
from mclabel.core.settings import Seed, at_most, rule
from mclabel.data.readers.base import ReaderSettings
from mclabel.domains import words
from mclabel.domains.arith.problems import (
    MAX_STEPS,
    MAX_STORY_STEPS,
    MIN_STEPS,
    Split,
    generate_problems,
)
from mclabel.domains.arith.stories import FAMILIES, HELD_OUT_FAMILIES
from mclabel.domains.pyarith.problems import generate_problems as generate_functions

MAX_WORDS = 1_000
"""Maximum number of problems of `words`. Every template has more distinct problems than this."""
MAX_ARITH = 1_000_000
"""Maximum number of problems of `arith`, which are held in memory."""
MAX_PYARITH = 100_000
"""Maximum number of problems of `pyarith`, each of which also has hidden tests."""

NumSteps = Annotated[int, Field(ge=1, le=MAX_STORY_STEPS)]


class ArithReader:
    """Reader that generates problems of `arith`."""

    class Settings(ReaderSettings):
        """Settings of generated word problems of arithmetic."""

        source: str = "arith"
        limit: Annotated[
            int | None, at_most(MAX_ARITH, "problems of arith are generated into memory")
        ] = Field(None, ge=1)
        """Maximum number of problems; null reads all. Generated problems need a number."""
        split: Split = "test"
        """Name of the split (part of the problems) that is read."""
        families: list[str] | None = None
        """Problem families; null takes the families that the bundled policy was trained on."""
        seed: Seed = 0
        """Random seed of the generated problems."""

        num_steps: tuple[NumSteps, NumSteps] = (MIN_STEPS, MAX_STEPS)
        """Minimum and maximum number of steps of a reference solution (1 to 10)."""

        @rule
        def _check_step_range_order(self) -> str | None:
            low, high = self.num_steps
            if low > high:
                return (
                    f"num_steps={list(self.num_steps)}: must be two numbers, the first no larger "
                    "than the second, such as [6, 10]"
                )
            return None

        @rule
        def _check_families_exist(self) -> str | None:
            if unknown := [name for name in self.families or () if name not in FAMILIES]:
                return f"families={unknown}: must be among {', '.join(FAMILIES)}"
            return None

        @rule
        def _check_no_held_out_families(self) -> str | None:
            held_out = sorted(set(self.families or ()) & set(HELD_OUT_FAMILIES))
            if self.split == "train" and held_out:
                return (
                    f"families={held_out}: these families are held out of training. "
                    "Use split=test, or remove them"
                )
            return None

    def __init__(self, settings: Settings) -> None:
        """Check that the settings limit the number of problems.

        Args:
            settings: settings with the kind and number of the problems.

        Raises:
            ConfigError: there is no limit.
        """
        self._settings, self._limit = settings, _require_limit(settings)

    def rows(self) -> Iterable[tuple[int, Problem]]:
        """Return the problems with their numbers, from 1."""
        return enumerate(self._generated_problems, 1)

    @cached_property
    def _generated_problems(self) -> list[Problem]:
        settings = self._settings
        return self._generate(
            self._limit,
            seed=settings.seed,
            split=settings.split,
            families=settings.families,
            num_steps=settings.num_steps,
        )

    _generate = staticmethod(generate_problems)


class PyArithReader(ArithReader):
    """Reader that generates problems of `pyarith`."""

    class Settings(ArithReader.Settings):
        """Settings of generated problems that ask for a Python function and have hidden tests."""

        source: str = "pyarith"
        limit: Annotated[
            int | None, at_most(MAX_PYARITH, "problems of pyarith are generated into memory")
        ] = Field(None, ge=1)
        """Maximum number of problems; null reads all. Generated problems need a number."""

    _generate = staticmethod(generate_functions)


class WordsReader:
    """Reader that generates word problems for the policy `smollm2:words`."""

    class Settings(ReaderSettings):
        """Settings of generated word problems of four to seven steps."""

        source: str = "words"
        limit: Annotated[
            int | None, at_most(MAX_WORDS, "the templates of words have few problems that differ")
        ] = Field(None, ge=1)
        """Maximum number of problems; null reads all. Generated problems need a number."""
        split: Literal["train", "test"] = "test"
        """Name of the split (part of the problems) that is read."""
        seed: Seed = 0
        """Random seed of the generated problems."""

    def __init__(self, settings: Settings) -> None:
        """Check that the settings limit the number of problems.

        Args:
            settings: settings with the kind and number of the problems.

        Raises:
            ConfigError: there is no limit.
        """
        self._settings, self._limit = settings, _require_limit(settings)

    def rows(self) -> Iterable[tuple[int, Problem]]:
        """Return the problems with their numbers, from 1; `meta.template` names the template."""
        settings = self._settings
        worked_problems = words.generate_problems(
            self._limit, seed=settings.seed, held_out=settings.split == "test"
        )
        problems = [
            Problem(
                id="words-" + hashlib.sha256(worked_problem.problem.encode()).hexdigest()[:16],
                text=worked_problem.problem,
                answer=worked_problem.answer,
                meta={"template": worked_problem.template},
            )
            for worked_problem in worked_problems
        ]
        return enumerate(problems, 1)


def _require_limit(settings: ReaderSettings) -> int:
    if settings.limit is None:
        raise ConfigError(
            f"problems.limit: required for problems.source={settings.source}, which is "
            "generated. Set it to the number of problems, such as 100"
        )
    return settings.limit
