"""The settings of a checker that a caller in Python chooses, read once for equal content."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from mclabel.checkers.base import CheckerField, CheckerSettings
from mclabel.core.components import component_names
from mclabel.core.config.load import check_config
from mclabel.core.settings import Settings


class _Chosen(Settings):
    checker: CheckerField


def chosen_settings(checker: Any) -> CheckerSettings:
    """The checked settings of a checker.

    Those of mclabel's own checkers are kept by their content. A class or a function of the caller's
    is looked up anew each time, since a notebook may define it again.

    Args:
        checker: its name, its settings, or their keys and values with `kind` among them.

    Raises:
        ConfigError: there is no such checker, or its settings are wrong; the message lists all
            faults.
    """
    content = {"kind": checker} if isinstance(checker, str) else checker
    if not isinstance(content, dict):
        return _read(checker)
    if content.get("kind", "math") not in component_names("checkers", built_in=True):
        return _read(checker)
    try:
        text = json.dumps(content, sort_keys=True)
    except (TypeError, ValueError, RecursionError):  # holds what JSON does not, such as settings
        return _read(checker)
    return _kept(text)


@lru_cache(maxsize=256)
def _kept(text: str) -> CheckerSettings:
    content: Mapping[str, Any] = json.loads(text)
    return _read(content)


def _read(checker: Any) -> CheckerSettings:
    return check_config(_Chosen, {"checker": checker}).checker
