"""Steps of real texts that begin or end at a wrong place, by line ends that a reader judged.

tests/data/words/line_ends.jsonl judges the line ends of 300 solutions, mostly by open models (of
ProcessBench), in the first half 200 of any kind, in the second 100 whose paragraphs hold several
lines. Lines that are not blank are numbered from 1. `never`: no step may end behind the line, since
it lies inside a display, an environment or a table, or says nothing by itself (a heading, "For
n = 1:", "and"). `either`: it leads in to the next ("This gives:", or a display goes on with the
sentence), and both are right. Behind any other line a step must end, as `split.by=line` says.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from mclabel.data.boundaries import newline_ends

ROOT = Path(__file__).parents[1]
JUDGED = ROOT / "data" / "words" / "line_ends.jsonl"


def split_faults(public: Path, half: str) -> float:
    """Share of the line ends, those that may be either left out, where `split.by=line` is wrong.

    Args:
        public: folder of processbench_gsm8k.jsonl and processbench_math.jsonl.
        half: `first`, by which the rules were chosen, or `second`.

    Raises:
        FileNotFoundError: one of them is not there.
    """
    num_wrong = num_judged = 0
    for text, judged in _texts(public):
        if judged["half"] != half:
            continue
        ends = newline_ends(text)
        lines = [place for place in _line_starts(text) if place]
        for number, (before, after) in enumerate(pairwise([0, *lines, len(text)]), 1):
            if after == len(text) or number in judged["either"]:
                continue
            index = bisect_left(ends, before + 1)
            is_end = index < len(ends) and ends[index] <= after
            num_wrong += is_end == (number in judged["never"])
            num_judged += 1
    return num_wrong / num_judged


def _line_starts(text: str) -> Iterator[int]:
    """Where lines that are not blank begin."""
    place = 0
    for line in text.splitlines(keepends=True):
        if line.strip():
            yield place
        place += len(line)


def _texts(public: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each text with the numbers of its lines, from 1 and without blank ones, that were judged."""
    files = {
        "processbench_gsm8k": public / "processbench_gsm8k.jsonl",
        "processbench_math": public / "processbench_math.jsonl",
        "words": ROOT / "data" / "words" / "judged_first.jsonl",
    }
    solutions = {
        (source, row["id"]): row["steps"]
        for source, path in files.items()
        for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())
    }
    for line in JUDGED.read_text(encoding="utf-8").splitlines():
        judged = json.loads(line)
        steps = solutions[judged["source"], judged["id"]]
        text = "".join(steps) if judged["source"] == "words" else "\n\n".join(steps)
        assert hashlib.sha256(text.encode()).hexdigest() == judged["sha256"], judged["id"]
        yield text, judged
