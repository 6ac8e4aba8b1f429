"""Opinions on the steps of solutions, without rollouts."""

from __future__ import annotations

from collections.abc import Mapping

JUDGES: Mapping[str, str] = {
    "symbolic": "mclabel.judge.symbolic.judge:SymbolicJudge",
    "critic": "mclabel.judge.critic.judge:CriticJudge",
    "scorer": "mclabel.judge.score:ScorerJudge",
}
"""Name in a configuration, and where the class stands."""
