"""Problems of the built-in domains, which are generated."""

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
from mclabel.domains.arith.problems import MAX_STEPS, MIN_STEPS, MOST_STEPS, Split, generate
from mclabel.domains.arith.stories import FAMILIES, HELD_OUT_FAMILIES
from mclabel.domains.pyarith.problems import generate as generate_functions

MAX_WORDS = 1_000
"""Fewer than any template of words has problems."""
MAX_ARITH = 1_000_000
"""Problems that are generated."""
MAX_PYARITH = 100_000
"""Fewer, since hidden tests are drawn for each."""

NumSteps = Annotated[int, Field(ge=1, le=MOST_STEPS)]


class ArithReader:
    """Problems of arith, as many as are asked for."""

    class Settings(ReaderSettings):
        """Generated word problems."""

        source: str = "arith"
        limit: Annotated[
            int | None, at_most(MAX_ARITH, "problems of arith are generated into memory")
        ] = Field(None, ge=1)
        """Maximum number of problems; null reads all. Generated problems need a number."""
        split: Split = "test"
        """Split of the problems."""
        families: list[str] | None = None
        """Problem families; null takes those of the bundled policy's training."""
        seed: Seed = 0
        """Random seed of the generated problems."""

        num_steps: tuple[NumSteps, NumSteps] = (MIN_STEPS, MAX_STEPS)
        """Minimum and maximum number of steps of a reference solution (1 to 10)."""

        @rule
        def _numbers_of_steps_can_be_told(self) -> str | None:
            low, high = self.num_steps
            if low > high:
                return (
                    f"num_steps={list(self.num_steps)}: must be two numbers, the first no larger "
                    "than the second, such as [6, 10]"
                )
            return None

        @rule
        def _families_are_known(self) -> str | None:
            if unknown := [name for name in self.families or () if name not in FAMILIES]:
                return f"families={unknown}: must be among {', '.join(FAMILIES)}"
            return None

        @rule
        def _none_is_held_out(self) -> str | None:
            held_out = sorted(set(self.families or ()) & set(HELD_OUT_FAMILIES))
            if self.split == "train" and held_out:
                return (
                    f"families={held_out}: these families are held out of training. "
                    "Use split=test, or remove them"
                )
            return None

    def __init__(self, settings: Settings) -> None:
        """Check that the number of problems is known.

        Args:
            settings: which problems, and how many.

        Raises:
            ConfigError: there is no limit.
        """
        self._settings, self._limit = settings, _limit(settings)

    def rows(self) -> Iterable[tuple[int, Problem]]:
        """The problems with their numbers."""
        return enumerate(self._problems, 1)

    @cached_property
    def _problems(self) -> list[Problem]:
        chosen = self._settings
        return self._generate(
            self._limit,
            seed=chosen.seed,
            split=chosen.split,
            families=chosen.families,
            num_steps=chosen.num_steps,
        )

    _generate = staticmethod(generate)


class PyArithReader(ArithReader):
    """Problems of pyarith, as many as are asked for."""

    class Settings(ArithReader.Settings):
        """Generated problems that ask for a function, with hidden tests as gold."""

        source: str = "pyarith"
        limit: Annotated[
            int | None, at_most(MAX_PYARITH, "problems of pyarith are generated into memory")
        ] = Field(None, ge=1)
        """Maximum number of problems; null reads all. Generated problems need a number."""

    _generate = staticmethod(generate_functions)


class WordsReader:
    """Word problems for `smollm2:words`, as many as are asked for."""

    class Settings(ReaderSettings):
        """Generated word problems of four to seven steps."""

        source: str = "words"
        limit: Annotated[
            int | None, at_most(MAX_WORDS, "the templates of words have few problems that differ")
        ] = Field(None, ge=1)
        """Maximum number of problems; null reads all. Generated problems need a number."""
        split: Literal["train", "test"] = "test"
        """Split of the problems."""
        seed: Seed = 0
        """Random seed of the generated problems."""

    def __init__(self, settings: Settings) -> None:
        """Check that the number of problems is known.

        Args:
            settings: which problems, and how many.

        Raises:
            ConfigError: there is no limit.
        """
        self._settings, self._limit = settings, _limit(settings)

    def rows(self) -> Iterable[tuple[int, Problem]]:
        """The problems with their numbers; `meta.template` names the story."""
        chosen = self._settings
        made = words.generate(self._limit, seed=chosen.seed, held_out=chosen.split == "test")
        problems = [
            Problem(
                id="words-" + hashlib.sha256(worked.problem.encode()).hexdigest()[:16],
                text=worked.problem,
                answer=worked.answer,
                meta={"template": worked.template},
            )
            for worked in made
        ]
        return enumerate(problems, 1)


def _limit(settings: ReaderSettings) -> int:
    if settings.limit is None:
        raise ConfigError(
            f"problems.limit: required for problems.source={settings.source}, which is "
            "generated. Set it to the number of problems, such as 100"
        )
    return settings.limit
