"""Judges, which give opinions on the steps of solutions without rollouts."""

from __future__ import annotations

from collections.abc import Mapping

JUDGES: Mapping[str, str] = {
    "symbolic": "mclabel.judge.symbolic.judge:SymbolicJudge",
    "critic": "mclabel.judge.critic.judge:CriticJudge",
    "scorer": "mclabel.judge.score:ScorerJudge",
}
"""Maps the name of each built-in judge in a configuration to the place of its class."""
