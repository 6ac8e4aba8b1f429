"""How the credit of a solution's steps follows from its outcome, step values and step scores.

A credit is one file here and one line in `CREDITS`, or a class in a package of your own.
"""

from __future__ import annotations

from collections.abc import Mapping

CREDITS: Mapping[str, str] = {
    "outcome": "mclabel.rl.credits.outcome:OutcomeCredit",
}
"""Name of each built-in credit in a configuration, and where its class stands."""
