"""How the credit of a solution's steps follows from its outcome, step values and step scores.

A credit is a class here and one line in `CREDITS`, or a class in a package of your own.
"""

from __future__ import annotations

from collections.abc import Mapping

CREDITS: Mapping[str, str] = {
    "outcome": "mclabel.rl.credits.outcome:OutcomeCredit",
    "first_error": "mclabel.rl.credits.outcome:FirstErrorCredit",
    "mc": "mclabel.rl.credits.values:ValueCredit",
    "prm_progress": "mclabel.rl.credits.values:ProgressCredit",
    "prm_min": "mclabel.rl.credits.scores:MinCredit",
    "prm_delta": "mclabel.rl.credits.scores:DeltaCredit",
    "prm_centred": "mclabel.rl.credits.scores:CentredCredit",
    "prm_sum": "mclabel.rl.credits.scores:SumCredit",
}
"""Name of each built-in credit in a configuration, and where its class stands."""
