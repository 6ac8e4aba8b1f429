"""Share of wrong step boundaries in real texts, by line ends that a reader judged.

tests/data/words/line_ends.jsonl judges the line ends of 300 solutions, mostly by open models (from
ProcessBench). Its first half has 200 solutions of any kind. Its second half has 100 solutions whose
paragraphs contain several lines. Non-blank lines are numbered from 1. `never` lists lines after
which no step may end: lines inside a display, an environment or a table, and lines without content
of their own (a heading, "For n = 1:", "and"). `either` lists lines that lead in to the next line
("This gives:", or a display that continues the sentence). A step may end after them or not. A step
must end after any other line, as `split.by=line` defines.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from mclabel.data.boundaries import find_newline_ends

ROOT = Path(__file__).parents[1]
JUDGED = ROOT / "data" / "words" / "line_ends.jsonl"


def split_faults(public: Path, half: str) -> float:
    """Return the share of line ends at which `split.by=line` is wrong.

    Line ends in `either` are left out.

    Args:
        public: folder of processbench_gsm8k.jsonl and processbench_math.jsonl.
        half: `first`, which was used to choose the rules, or `second`.

    Raises:
        FileNotFoundError: one of the two files is missing.
    """
    num_wrong = num_judged = 0
    for text, judged in _texts(public):
        if judged["half"] != half:
            continue
        ends = find_newline_ends(text)
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
    """Yield the character offsets at which non-blank lines begin."""
    place = 0
    for line in text.splitlines(keepends=True):
        if line.strip():
            yield place
        place += len(line)


def _texts(public: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each text with its judged line numbers, which count non-blank lines from 1."""
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
