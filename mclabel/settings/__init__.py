"""Settings: each component declares its own, once, in the module that uses them.

`base` says what a class of settings and a field are; `rules` checks what holds between fields.
"""

from mclabel.settings.base import (
    COMPONENT_FAULT,
    CONTENT,
    NESTED_FAULTS,
    OPERATIONAL,
    RUNS_CODE,
    SENSITIVE,
    AtMost,
    Born,
    Chosen,
    ComponentSettings,
    Harmless,
    Named,
    OneOf,
    Settings,
    at_most,
    content_fields,
    harmful_values,
    joined_faults,
    settings_class,
)
from mclabel.settings.rules import rule

__all__ = [
    "COMPONENT_FAULT",
    "CONTENT",
    "NESTED_FAULTS",
    "OPERATIONAL",
    "RUNS_CODE",
    "SENSITIVE",
    "AtMost",
    "Born",
    "Chosen",
    "ComponentSettings",
    "Harmless",
    "Named",
    "OneOf",
    "Settings",
    "at_most",
    "content_fields",
    "harmful_values",
    "joined_faults",
    "rule",
    "settings_class",
]
