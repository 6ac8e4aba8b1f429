"""A critic: a language model that is asked for the first wrong step of a solution.

`prompts` writes the question, `parse` reads the answer as a vote, `votes` decides how many to ask
for. `judge` declares what can be set, and asks.
"""

from __future__ import annotations

from mclabel.judge.critic.judge import CriticSettings
from mclabel.judge.critic.parse import FIRST_INDEX, Result, Vote, Votes, parse_output
from mclabel.judge.critic.prompts import (
    TEMPLATES,
    Template,
    critic_prompt,
    own_template,
    template_hash,
)

__all__ = [
    "FIRST_INDEX",
    "TEMPLATES",
    "CriticSettings",
    "Result",
    "Template",
    "Vote",
    "Votes",
    "critic_prompt",
    "own_template",
    "parse_output",
    "template_hash",
]
