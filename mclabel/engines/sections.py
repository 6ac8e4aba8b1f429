"""The section of a configuration that an engine's settings stand in, for messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from mclabel.core.errors import ConfigError, EngineError

_KEY = re.compile(r"(?<![\w.:/])policy(?=\.)")


@contextmanager
def settings_of(section: str) -> Iterator[None]:
    """Let errors of an engine name its settings by their keys in a section.

    Engines call their settings `policy.…`, as in a labelling job.

    Args:
        section: such as `judge.policy`.
    """
    try:
        yield
    except (ConfigError, EngineError) as error:
        error.args = (_KEY.sub(section, str(error)),)
        raise
