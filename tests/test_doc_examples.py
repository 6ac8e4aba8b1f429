"""The examples of docs/extending*.md work exactly as printed."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import TypeAdapter

import mclabel as mc
from mclabel import jobs
from mclabel.data.readers.base import make_reader_settings
from mclabel.data.readers.problems import read_problems
from mclabel.judge.opinions import OpinionRun
from mclabel.rl.config import CreditField, ServeRewardsConfig
from mclabel.rl.credits import CheckedCredit
from mclabel.rl.serve import serve_rewards
from mclabel.run.shards.store import Store
from mclabel.run.shards.trees import read_trees
from mclabel.serving.requests import RequestLimits
from mclabel.serving.run import ServerAddress
from tests.support.commands import run_verb
from tests.support.labelled import arith_rows, write_run
from tests.support.searches import check_trees

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("extending", "extending-checker", "extending-formats", "extending-judge", "search", "rl")
NAMES = [f"shown_{page.replace('-', '_')}" for page in PAGES]


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Write the Python code of each page as an importable module."""
    for page, name in zip(PAGES, NAMES, strict=True):
        blocks = re.findall(
            r"^```python\n(.*?)^```",
            (DOCS / f"{page}.md").read_text(encoding="utf-8"),
            re.MULTILINE | re.DOTALL,
        )
        assert blocks, page
        (tmp_path / f"{name}.py").write_text("\n\n".join(blocks))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in NAMES:
        sys.modules.pop(name, None)


def test_the_checkers() -> None:
    same_time = "shown_extending_checker:same_time"
    within = {"kind": "shown_extending_checker:Within", "share": 0.05}
    for checker, gold, text, expected in (
        (same_time, "1.5 h", "It takes 90 min.", "right"),
        (same_time, "1.5 h", "It takes 2 h.", "wrong"),
        (same_time, "1.5 h", "It takes long.", "unknown"),
        (within, "100", "about 98", "right"),
        (within, "100", "about 90", "wrong"),
        (within, "100", "about none", "unknown"),
    ):
        assert mc.grade(text, gold, checker=checker).verdict.value == expected


def test_the_readers(tmp_path: Path) -> None:
    counted = list(
        read_problems(
            make_reader_settings("shown_extending_formats:countdown:7", answer_column="gold")
        )
    )
    assert [problem.text for problem in counted][:2] == ["What is 0 + 1?", "What is 1 + 1?"]
    assert len(counted) == 7
    (tmp_path / "2024-01.json").write_text(json.dumps({"problem": "1 + 1", "answer": "2"}))
    (tmp_path / "2024-02.json").write_text('{"problem": "1 +')
    (tmp_path / "2023-01.json").write_text("{}")
    assert [
        (problem.text, problem.answer)
        for problem in list(read_problems(f"shown_extending_formats:Exams:{tmp_path}"))
    ] == [("1 + 1", "2")]


def test_the_format(tmp_path: Path) -> None:
    run, name = write_run(tmp_path / "run", arith_rows(5)), "shown_extending_formats:Verdicts"
    assert jobs.export_run(run, name, str(tmp_path / "rows")).num_rows == 5
    assert (
        jobs.import_file(
            str(tmp_path / "rows/data.jsonl"), name, str(tmp_path / "back")
        ).num_solutions
        == 5
    )


def test_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = re.search(
        r"^PYTHONPATH=\. mclabel (.*?)\n```",
        (DOCS / "search.md").read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    assert command
    typed = command[1].replace("\\\n", " ").replace("my_search:", "shown_search:")
    typed = typed.replace("configs/", f"{DOCS.parent}/configs/")
    monkeypatch.chdir(tmp_path)
    run_verb(shlex.split(typed))
    trees = list(read_trees(Store("runs/greedy")))
    assert len(trees) == 4 and all(tree.chosen is not None for tree in trees)
    check_trees(trees, [tree.problem_id for tree in trees])


def test_the_credit_and_the_client_of_rewards() -> None:
    shown_rl = importlib.import_module("shown_rl")

    assigned = CheckedCredit(TypeAdapter(CreditField).validate_python("shown_rl:LastScore")).assign(
        shown_rl.GROUP
    )
    assert [[(segment.end, segment.credit) for segment in segments] for segments in assigned] == [
        [(2, 0.25)],
        [(1, -0.25)],
    ]
    scored = []

    def ask(url: str, stop: Callable[[], None]) -> None:
        def run() -> None:
            try:
                scored.extend(shown_rl.rewards("1 + 1", ["It is 2.", "It is 3."], "2", url=url))
            finally:
                stop()

        threading.Thread(target=run, daemon=True).start()

    serve_rewards(
        ServeRewardsConfig(), address=ServerAddress(port=0), limits=RequestLimits(), on_ready=ask
    )
    assert [reward.credits for reward in scored] == [(0.5,), (-0.5,)]


def test_the_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (DOCS / "extending-judge.md").read_text(encoding="utf-8")
    rows = re.search(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    command = re.search(r"^PYTHONPATH=\. mclabel (.*)$", page, re.MULTILINE)
    expected = re.search(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert rows and command and expected
    (tmp_path / "solutions.jsonl").write_text(rows[1])
    typed = command[1].replace("numbers_from_nowhere:", "shown_extending_judge:")
    monkeypatch.chdir(tmp_path)
    assert expected[1].strip() in run_verb(shlex.split(typed)).output
    opinions = OpinionRun.read(str(tmp_path / "opinions")).opinions
    assert [opinion.first_error for opinion in opinions.values()] == [None, 0]
    assert [(flag.start, flag.end) for flag in opinions["2"].flags] == [(13, 14)]
