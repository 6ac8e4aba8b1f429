"""Marks of a field of settings: whether labels depend on it, and what a file alone must not set."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

OPERATIONAL = "operational"
"""Marks a field that does not change what a label means."""
SENSITIVE = "sensitive"
"""Marks a field into which a secret could be put by mistake: messages do not repeat its value."""
CONTENT = "content"
"""Marks a field that names a file of which the content counts, and not the place."""

ONE_VALUE = "one value"
"""Marks a mapping with keys of the user's own: it is recorded and compared as one value, as a key
that one of two records lacks would be taken for a setting of another version."""


@dataclass(frozen=True)
class Harmless:
    """Marks a field by whose values somebody's code could run, or a secret leave the machine.

    A document may hold harmless values of it; any other must be given on the command line as well.
    Of a mapping each value counts alone.
    """

    is_harmless: Callable[[Any], bool]
    risk: str
    """What another value does: a clause of which the key is the subject."""


RUNS_CODE = Harmless(operator.not_, "runs Python code that comes with a model")
"""Marks a field that trusts the code of models."""
TrustsCode = Annotated[bool, RUNS_CODE]
"""Type of a field that trusts the code of one model."""
