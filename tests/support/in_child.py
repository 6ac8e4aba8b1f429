"""Functions that tests run in another process, which cannot import test modules."""

from __future__ import annotations

import os

from mclabel.domains.words.smollm2 import CACHE, prepare_smollm2_folder


def smollm2_folder_of(cache: str) -> None:
    """Make the model's folder in another cache."""
    os.environ[CACHE] = cache
    prepare_smollm2_folder()
