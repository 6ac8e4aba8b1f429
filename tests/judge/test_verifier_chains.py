"""A critic's chains are split into step verdicts as a person would read them."""

from __future__ import annotations

import pytest

from mclabel.judge.critic.chains import read_step_verdicts
from mclabel.judge.critic.parse import MAX_CHARACTERS, parse_output
from mclabel.judge.critic.verdicts import VerdictFault
from tests.support.verifier_chains import GoldenChain, golden_chains

CHAINS = golden_chains()


@pytest.mark.parametrize("chain", CHAINS, ids=[f"{chain.format}: {chain.name}" for chain in CHAINS])
def test_chains_are_read_as_people_read_them(chain: GoldenChain) -> None:
    reading = read_step_verdicts(
        chain.text, chain.num_steps, chain.parser, truncated=chain.truncated
    )
    assert list(reading.verdicts) == chain.verdicts
    assert (reading.fault is None) == chain.complete, reading.reason
    if chain.complete:
        vote = parse_output(chain.text, chain.parser, chain.num_steps, truncated=False)
        error = chain.verdicts.index(False) if False in chain.verdicts else None
        assert (vote.is_known, vote.first_error) == (True, error)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Step 1: \\boxed{correct}\nStep 2: \\boxed{incorrect}\nStep 4: \\boxed{correct}",
         VerdictFault.MORE_STEPS),
        ("Step 1: \\boxed{correct}\nStep 3: \\boxed{incorrect}", VerdictFault.MISSING),
        ("Step 1: \\boxed{correct} \\boxed{incorrect}", VerdictFault.CONTRADICTION),
        ("\\boxed{incorrect}\nStep 1: \\boxed{incorrect}", VerdictFault.BEFORE_FIRST),
        ("<think>Step 1: \\boxed{incorrect}", VerdictFault.OPEN_THOUGHT),
        ("Nothing.", VerdictFault.NO_VERDICTS),
        ("Step 1: \\boxed{incorrect}" + " " * MAX_CHARACTERS, VerdictFault.TOO_LONG),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_chain_is_named(text: str, fault: VerdictFault) -> None:
    assert read_step_verdicts(text, 3).fault is fault


@pytest.mark.parametrize(
    "part",
    [
        *("Step 1", "Step 1:\n", "```\n", "```x y\n", "\\boxed{", "\\boxed{correct}", "<think>"),
        *("\\boxed{correct} or ", "is the step correct ", "**", "\n#*> -", "第一", "steps 1-", "{"),
        "Judgement: " + "Yes " * 5,
    ],
)
def test_reading_hostile_texts_ends(part: str) -> None:
    """Reading takes linear time; with quadratic time, these texts would take minutes."""
    read_step_verdicts(part * (200_000 // len(part)), 12)
