"""Functions that tests run in another process, which cannot import test modules."""

from __future__ import annotations

import os

from mclabel.answers import grade
from mclabel.domains.words.smollm2 import CACHE, prepare_smollm2_folder


def grade_in_child(pair: tuple[str, str]) -> tuple[str, int]:
    """Grade a pair; return the verdict and the id of the grading process."""
    return grade(*pair).verdict.value, os.getpid()


def smollm2_folder_of(cache: str) -> None:
    """Make the model's folder in another cache."""
    os.environ[CACHE] = cache
    prepare_smollm2_folder()
