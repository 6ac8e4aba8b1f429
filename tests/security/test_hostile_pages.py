"""Model texts are never executed on any page: report, viewer, annotation, notebook."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from selenium.webdriver.remote.webdriver import WebDriver

from mclabel.core.records import Flag, LabeledSolution, Outcome
from mclabel.run.shards.store import Store
from mclabel.run.shards.trees import write_trees
from tests.report.test_trees_page import node, tree
from tests.support.annotated import AnnotateProcess
from tests.support.browser import chromium, count_violations, ids, texts, until, violations
from tests.support.shown import (
    HOSTILE,
    SCORED,
    combined,
    evaluation,
    hostile_run,
    report_page,
    solution,
    write_run,
)
from tests.support.viewer_process import ViewerHere

ALL = "\n".join(HOSTILE.values())
INJECT = """
const { body } = document;
const tries = [
  () => { const s = document.createElement("script"); s.text = "executed = 0"; body.append(s) },
  () => { body.innerHTML += "<img src=x onerror='window.executed = 0'>"; },
  () => { body.setAttribute("onclick", "window.executed = 0"); body.click(); },
];
for (const attempt of tries) try { attempt(); } catch { continue; }
"""


def hostile_rows() -> list[LabeledSolution]:
    """Return two solutions, one of which has a source that marks places in its text."""
    short = ALL[:2000]
    rows = [
        solution(n, [f"{short}\n", f"{short} 2\n", "end"], [2, 0, 0], outcome=Outcome.WRONG,
                 problem=short, answer=short, prediction=short)
        for n in range(2)
    ]  # fmt: skip
    return [
        combined(rows[0], Flag(step=1, start=0, end=40, reason=short), source=short[:50]),
        rows[1],
    ]


def write_hostile_run(folder: Path) -> str:
    nodes = [node("a", text=ALL), node("b", "a", text=ALL, weight=1)]
    store = Store(str(folder), create=True)
    write_trees(store, "0" * 16, "test", [tree(ALL[:50], *nodes, chosen="b", text=ALL)], {})
    return write_run(folder, hostile_rows(), None)


def write_evaluation(folder: Path) -> str:
    """Return an evaluation whose scorers, groups and examples have hostile texts."""
    place = Path(evaluation(folder, **SCORED, **{ALL[:300]: 0.5})) / "best_of_n.json"
    report = json.loads(place.read_text())
    case = dict.fromkeys(("problem_id", "answer", "problem", "chosen", "right"), ALL)
    report["fooled"] = {ALL[:300]: [{**case, "score": 0.9, "right_score": 0.5}]}
    accuracy = {name: {"4": by["4"]} for name, by in report["result"]["accuracy"].items()}
    report["result"]["groups"] = {ALL[:50]: {ALL[:50]: {"num_problems": 1, "accuracy": accuracy}}}
    place.write_text(json.dumps(report))
    return str(folder)


RUNS: dict[str, Callable[[Path], str]] = {
    "labels": hostile_run,
    "opinions": lambda folder: write_run(folder, hostile_rows(), None),
    "trees": write_hostile_run,
    "choices": write_evaluation,
}


def notebook_page() -> str:
    """Return a notebook's HTML for a hostile solution."""
    return hostile_rows()[0]._repr_html_()


class Tags(HTMLParser):
    """A parser that collects the tags and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]


@pytest.mark.parametrize("kind", [*RUNS, "notebook"])
def test_no_markup_of_a_model_is_in_a_page(kind: str, tmp_path: Path) -> None:
    if kind == "notebook":
        page = notebook_page()
    else:
        place = RUNS[kind](tmp_path / "run")
        page = report_page([place], str(tmp_path / "report.html")).read_text(encoding="utf-8")
        assert not {"\x1b", "\x00", "\u202e", "\u200b"} & set(page)
    assert "&lt;script&gt;window.executed=1&lt;/script&gt;" in page and "a" * 10_000 not in page
    tags = Tags(page)
    is_report = kind != "notebook"
    assert tags.names.count("style") == is_report
    assert tags.names.count("script") == 2 * is_report  # the scripts of the theme and of LaTeX
    assert not {"img", "iframe", "object", "embed", "form", "base"} & set(tags.names)
    for name, value in tags.attributes:
        assert not name.startswith("on") and name != "src", (name, value)
        assert not name.endswith("href") or value.startswith("#"), (name, value)


def views_of_viewer(browser: WebDriver, folder: Path) -> Iterator[str]:
    with ViewerHere(hostile_run(folder / "run")) as process:
        process.wait_for(len(HOSTILE))
        for number, (name, text) in enumerate(HOSTILE.items()):
            browser.get(f"{process.address}&id=solution-{number}&step=0")
            until(lambda: len(texts(browser, ".rollout-list li")) == 4, f"{name}: rollouts")
            until(lambda: len(ids(browser)) == len(HOSTILE), f"{name}: the list")
            browser.execute_script(
                "document.querySelectorAll('.math').forEach(e => e.scrollIntoView())"
            )
            if "LaTeX" not in name:
                kept = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)
                assert texts(browser, ".steps .prose")[0].startswith(kept[:19_000]), name
            yield name
        browser.get(process.address)
        until(lambda: texts(browser, ".charts section"), "the charts")
        yield "charts"
        browser.get(f"{process.origin}/?id=solution-0&with=solution-1")
        until(lambda: len(texts(browser, ".side")) == 2, "both")
        yield "side by side"
        # checks that violations are counted and that the policy blocks scripts
        browser.execute_script(INJECT)
        assert until(lambda: violations(browser), "the fence")
        assert browser.execute_script("return window.executed") is None


def views_of_annotation(browser: WebDriver, folder: Path) -> Iterator[str]:
    run, out = write_run(folder / "run", hostile_rows(), None), str(folder / "out")
    with AnnotateProcess(run, "-o", out, "--people", "ana,ben", "--overlap", "1") as page:
        browser.get(page.addresses["ana"])
        until(lambda: len(texts(browser, ".step")) == 3, "the steps")
        yield "annotation"
        for person, opinions in (("ana", ["good", "bad", None]), ("ben", ["good"] * 3)):
            assert (
                page.post(page.opinion(person, "solution-0", opinions, note=ALL[:1000]), person)[0]
                == 200
            )
        browser.get(page.addresses["overseer"])
        until(lambda: texts(browser, "#differ section h3"), "the disagreement")
        yield "overview"


@pytest.mark.browser
@pytest.mark.parametrize("views", [views_of_viewer, views_of_annotation])
def test_nothing_that_a_model_wrote_is_executed(
    views: Callable[[WebDriver, Path], Iterator[str]], tmp_path: Path
) -> None:
    with chromium() as browser:
        count_violations(browser)
        for name in views(browser, tmp_path):
            assert browser.execute_script("return window.executed") is None, name
            assert violations(browser) == [], name
            foreign = (
                "img, iframe, main style, #solution style, a[href^=javascript], .prose a, .big"
            )
            assert browser.find_elements("css selector", foreign) == [], name
