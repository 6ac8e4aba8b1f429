"""Judges, which name the first wrong step of a solution or score its steps, without rollouts."""

from __future__ import annotations

from collections.abc import Mapping

JUDGES: Mapping[str, str] = {
    "symbolic": "mclabel.judge.symbolic.judge:SymbolicJudge",
    "critic": "mclabel.judge.critic.judge:CriticJudge",
    "scorer": "mclabel.judge.score:ScorerJudge",
}
"""Maps the name of each built-in judge in a configuration to its class, as `module:Class`."""
