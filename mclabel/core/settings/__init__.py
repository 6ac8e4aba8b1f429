"""Settings: each component declares its own, once, in the module that uses them.

`base` says what a class of settings and a field are; `bounds` limits numbers; `marks` says what a
field is to others; `rules` checks what holds between fields; `recorded` reads records back.
"""

from mclabel.core.settings.base import (
    COMPONENT_FAULT,
    NESTED_FAULTS,
    Chosen,
    ComponentSettings,
    Named,
    OneOf,
    Settings,
    content_fields,
    harmful_values,
    joined_faults,
    settings_class,
)
from mclabel.core.settings.fields import (
    CONTENT,
    MAX_AMOUNT,
    MAX_CORES,
    MAX_COUNT,
    MAX_SECONDS,
    MAX_SEED,
    MAX_TOKENS,
    MAX_TOTAL,
    ONE_VALUE,
    OPERATIONAL,
    RUNS_CODE,
    SENSITIVE,
    AtMost,
    Harmless,
    Seed,
    TrustsCode,
    at_most,
)
from mclabel.core.settings.recorded import Amount, Count, read_record
from mclabel.core.settings.rules import rule

__all__ = [
    "COMPONENT_FAULT",
    "CONTENT",
    "MAX_AMOUNT",
    "MAX_CORES",
    "MAX_COUNT",
    "MAX_SECONDS",
    "MAX_SEED",
    "MAX_TOKENS",
    "MAX_TOTAL",
    "NESTED_FAULTS",
    "ONE_VALUE",
    "OPERATIONAL",
    "RUNS_CODE",
    "SENSITIVE",
    "Amount",
    "AtMost",
    "Chosen",
    "ComponentSettings",
    "Count",
    "Harmless",
    "Named",
    "OneOf",
    "Seed",
    "Settings",
    "TrustsCode",
    "at_most",
    "content_fields",
    "harmful_values",
    "joined_faults",
    "read_record",
    "rule",
    "settings_class",
]
