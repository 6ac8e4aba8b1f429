"""Labelling jobs on the scripted policy, for tests of the job machinery."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.engines import PolicySettings
from mclabel.engines.scripted import ScriptedEngine
from mclabel.labeling.config import LabelConfig
from mclabel.run.tally import JobReport


def write_problems(folder: Path, count: int) -> Path:
    """Write a file of problems that the scripted policy can answer."""
    path = folder / "problems.jsonl"
    rows = [
        {"id": f"p{i}", "problem": f"P{i} [answer {i}]", "answer": str(i)} for i in range(count)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def write_config(folder: Path) -> Path:
    """Write a configuration that sets only the seed."""
    path = folder / "empty.yaml"
    path.write_text("seed: 1\n")
    return path


def scripted_overrides(source: Path, out: Path, *more: str) -> list[str]:
    """Return the overrides of a job in blocks of four problems."""
    base = [f"problems.source={source}", f"out={out}", "policy.engine=scripted"]
    return [*base, "block_problems=4", "estimator.rollouts=4", *more]


def run_label_job(overrides: Sequence[str], **options: Any) -> JobReport:
    """Run a labelling job without showing its progress.

    Args:
        overrides: all settings that differ from the defaults.
        options: keyword arguments of `jobs.label`.
    """
    return jobs.label(load_config(LabelConfig, None, overrides), lambda state: None, **options)


def scripted(*, max_tokens: int = 1000, **settings: Any) -> PolicySettings:
    """Return the settings of a scripted policy; its engine is `ScriptedEngine(scripted())`.

    Args:
        max_tokens: maximum characters of a solution.
        settings: settings of the engine.
    """
    return PolicySettings(max_tokens=max_tokens, engine=ScriptedEngine.Settings(**settings))
