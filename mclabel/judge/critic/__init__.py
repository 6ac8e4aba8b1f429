"""A critic: a language model that is asked for the first wrong step of a solution.

`prompts` builds the prompt. `parse` reads an answer as a vote, and decides how many votes to
request. `judge` declares the settings and samples the answers. `chains` and `verdicts` read
verdicts on single steps.
"""

from __future__ import annotations

from mclabel.judge.critic.judge import CriticSettings
from mclabel.judge.critic.parse import FIRST_INDEX, Vote, VoteCounter, VoteResult, parse_output
from mclabel.judge.critic.prompts import (
    TEMPLATES,
    Template,
    fill_critic_prompt,
    hash_template,
    make_user_template,
)

__all__ = [
    "FIRST_INDEX",
    "TEMPLATES",
    "CriticSettings",
    "Template",
    "Vote",
    "VoteCounter",
    "VoteResult",
    "fill_critic_prompt",
    "hash_template",
    "make_user_template",
    "parse_output",
]
