"""Verifiers' chains, with the verdicts that a person reads in them, and runs of a critic."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mclabel.core.records import LabeledSolution
from mclabel.judge.base import Answer, hash_prompt
from mclabel.judge.critic import TEMPLATES, fill_critic_prompt
from mclabel.prm.scoring.items import convert_solution_to_item
from mclabel.run.shards.manifest import MANIFEST, SemanticConfig, claim_manifest
from mclabel.run.shards.opinions import commit_opinions
from mclabel.run.shards.store import Store

_FILE = Path(__file__).parents[1] / "judge" / "verifier_chains.jsonl"
PARSERS = {"thinkprm": "step_verdicts", "genprm": "step_verdicts", "rprm": "step_verdicts"}
"""Parsers of formats whose parser has a different name."""


@dataclass(frozen=True, kw_only=True)
class GoldenChain:
    """A verifier's chain, with a person's reading of it."""

    name: str
    format: str
    num_steps: int
    verdicts: list[bool | None]
    """Verdict on each step; None if the chain has no verdict or both."""
    complete: bool
    """True if the chain verifies all steps up to the first incorrect one."""
    truncated: bool
    text: str

    @property
    def parser(self) -> str:
        return PARSERS.get(self.format, self.format)


def golden_chains() -> list[GoldenChain]:
    """Return all chains of the file."""
    lines = _FILE.read_text(encoding="utf-8").splitlines()
    return [GoldenChain(**json.loads(line)) for line in lines]


def chain(row: LabeledSolution, error: int | None, words: str = "I redo it.") -> str:
    """Return the text of a critic that finds the first error at step `error`."""
    last = len(row.steps) if error is None else error + 1
    says = ["incorrect" if index == error else "correct" for index in range(last)]
    return "\n".join(f"Step {i}: {words} \\boxed{{{verdict}}}" for i, verdict in enumerate(says, 1))


def answer(row: LabeledSolution, text: str, number: int = 0, **more: Any) -> Answer:
    """Return a critic's answer to the prompt `step_verdicts`."""
    steps = [step.text for step in row.solution.steps]
    prompt = fill_critic_prompt(TEMPLATES["step_verdicts"], row.problem.text, steps)
    content = {"finish_reason": "stop", "num_tokens": 60, "max_tokens": 90, **more}
    return Answer(prompt=hash_prompt(prompt), number=number, text=text, **content)


def write_critic(
    folder: Path,
    rows: Sequence[LabeledSolution],
    say: Callable[[LabeledSolution], list[Answer]],
    **settings: Any,
) -> str:
    """Write a critic's run over a labelling run, with these answers."""
    store = Store(str(folder), create=True)
    config = {"task": "judge", "judge": {"kind": "critic", "claim": "where", "split": "line"}}
    settings = {"template": asdict(TEMPLATES["step_verdicts"]), "use_reference": False} | settings
    claim_manifest(
        store,
        MANIFEST,
        SemanticConfig.from_config(config),
        {"input": {"solutions": "run"}, "asked": settings},
    )
    shard = [
        {
            "id": row.solution.id, "row": number,
            "input": convert_solution_to_item(number, row).row,
            "num_steps": len(row.steps), "is_known": False, "first_error": None, "sureness": None,
            "reason": "", "votes": [], "scores": [], "flags": [],
            "answers": [asdict(critic_answer) for critic_answer in say(row)], "num_tokens": 0,
        }
        for number, row in enumerate(rows, 1)
    ]  # fmt: skip
    commit_opinions(store, "block", "attempt", shard, {"set_aside": {}})
    return str(folder)
