"""Functions that all adapters share, which load without the trainers' packages."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mclabel.rl.adapters.rewards import (
    extract_problem,
    extract_text,
    place_rewards_at_step_ends,
    score_and_check,
    spread_credits_over_tokens,
)
from mclabel.rl.client import RewardClient, RewardError, RewardItem, StepRewards
from tests.support.reward_server import RewardServer


class Letters:
    """A tokenizer with one token per letter; 0 is the end token."""

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return "".join(chr(x) for x in ids if x)


IDS = [*map(ord, "ab\ncd"), 0]
TWO = StepRewards(1.0, ends=(3, 5), credits=(0.5, -1.0), ends_segment=(True, True))


REPEATED = StepRewards(
    0.0, ends=(1, 2), credits=(-0.5, -0.5), ends_segment=(False, True), refused="repeated"
)


@pytest.mark.parametrize(
    ("step_rewards", "ids", "credits", "rewards"),
    [
        # The end token belongs to the last step.
        (TWO, IDS, [0.5, 0.5, 0.5, -1.0, -1.0, -1.0], [0.0, 0.0, 0.5, 0.0, 0.0, -1.0]),
        # Refused completions are blamed as the server says; those without steps teach nothing.
        (REPEATED, [0, 1, 2], [-0.5] * 3, [0.0, 0.0, -0.5]),
        (StepRewards(0.0, refused="empty"), [0], [0.0], [0.0]),
    ],
)
def test_each_token_has_the_credit_of_its_step(
    step_rewards: StepRewards, ids: list[int], credits: list[float], rewards: list[float]
) -> None:
    assert spread_credits_over_tokens(step_rewards, ids, Letters()) == credits
    assert place_rewards_at_step_ends(step_rewards, ids, Letters()) == rewards


def test_steps_of_another_text_are_an_error() -> None:
    with pytest.raises(RewardError, match="character 5, but the completion has only 2"):
        spread_credits_over_tokens(TWO, IDS[:2], Letters())
    with pytest.raises(RewardError, match="cannot be decoded by this tokenizer"):
        spread_credits_over_tokens(TWO, [-1], Letters())


@pytest.mark.parametrize(
    "broken",
    [
        StepRewards(1.0, ends=(3,), credits=(1.0, 1.0), ends_segment=(True, True)),
        StepRewards(1.0, ends=(3,), credits=(1.0,)),
        StepRewards(1.0, ends=(3,), credits=(float("-inf"),), ends_segment=(True,)),
        StepRewards(1.0, scores=(float("nan"),)),
    ],
)
def test_broken_answers_are_an_error(broken: StepRewards) -> None:
    with RewardServer(lambda item: broken) as server, pytest.raises(RewardError, match="item 0"):
        score_and_check(RewardClient(server.url), [RewardItem("p", "c")])


def test_texts_and_problems() -> None:
    assert extract_text(None) == extract_text([]) == extract_text([{"role": "assistant"}]) == ""
    assert extract_text([{"content": "a"}, {"role": "tool", "content": None}]) == "a"
    with pytest.raises(RewardError, match="no user message with text"):
        extract_problem([{"role": "system", "content": "Think."}])


ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("module", ["client", "adapters.rewards", "adapters.openrlhf"])
def test_loads_with_nothing_but_python(module: str) -> None:
    code = (
        "import sys\n"
        f"import mclabel.rl.{module}\n"
        "others = {name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)\n"
        "print(sorted(name for name in others if not name.startswith('_')))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"sys = __import__('sys'); "
         f"sys.path.insert(0, {str(ROOT)!r})\n{code}"],
        capture_output=True, text=True, env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['mclabel']"


@pytest.mark.parametrize("name", ["rewards", "trl", "verl", "openrlhf"])
def test_adapters_use_no_other_room(name: str) -> None:
    """Trainers' environments have mclabel without its dependencies."""
    tree = ast.parse((ROOT / f"mclabel/rl/adapters/{name}.py").read_text(encoding="utf-8"))
    ours = {
        module
        for module in {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        if module and module.startswith("mclabel")
    }
    assert ours and ours <= ({"mclabel.rl.client", "mclabel.rl.adapters.rewards"})
