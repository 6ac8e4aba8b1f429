"""Opinions on the steps of solutions, without rollouts."""

from __future__ import annotations

from collections.abc import Mapping

JUDGES: Mapping[str, str] = {
    "symbolic": "mclabel.judges.symbolic.judge:SymbolicJudge",
    "critic": "mclabel.judges.critic.judge:CriticJudge",
    "scorer": "mclabel.judges.scorer:ScorerJudge",
}
"""Name in a configuration, and where the class stands."""
