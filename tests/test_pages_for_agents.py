"""AGENTS.md and docs/llms.txt are short and agree with the pages."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "scripts" / "llms_txt.py"


def test_the_list_of_pages_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("llms_txt", PLACE)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    text = (ROOT / "docs" / "llms.txt").read_text()
    assert text == script.llms_txt(), "run: python scripts/llms_txt.py"
    listed = set(re.findall(r"^- \[.+?\]\(([^)]+)\): \S", text, re.MULTILINE))
    assert {
        str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")
    } <= listed
    assert all((ROOT / "docs" / place).exists() for place in listed)
