"""Opinions and marked places on the page of a solution, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from selenium.webdriver.remote.webdriver import WebDriver

from mclabel.core.records import Flag, LabeledSolution, Outcome
from tests.support.browser import (
    chromium,
    count_violations,
    ids,
    logged_problems,
    open_page,
    texts,
    until,
    violations,
)
from tests.support.shown import combined, solution, write_run
from tests.support.viewer_process import ViewerHere

pytestmark = pytest.mark.browser

HOSTILE = "<script>window.executed=1</script><img src=x onerror=window.executed=2> \x1b \u202e"


def make_row(number: int, step: str) -> LabeledSolution:
    return solution(
        number,
        ["We add.\n", step, "So \\boxed{5}."],
        [3, 0, 0],
        outcome=Outcome.WRONG,
        prediction="5",
    )


def make_flag(start: int, end: int, reason: str = "why") -> Flag:
    return Flag(step=1, start=start, end=end, reason=reason)


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewerHere]:
    edges = combined(
        make_row(0, "2 + 2 = 5, so 5."), make_flag(0, 9, "2 + 2 is 4"), make_flag(14, 16)
    )
    over = combined(make_row(1, "2 + 2 = 5, so 5."), make_flag(0, 9), make_flag(4, 12), kept=False)
    formula = combined(
        make_row(2, "As $2 + 2 = 5$ we see 5 of it."), make_flag(8, 13), make_flag(22, 23)
    )
    wide = combined(make_row(3, "😀😀 2 \u202e+ 2 = 5"), make_flag(3, 4), make_flag(13, 99))
    hostile = combined(make_row(4, "<b>5</b>"), make_flag(0, 8, HOSTILE), source="<i>judge</i>")
    twin = replace(
        make_row(5, "It is 5."),
        problem=edges.problem,
        solution=replace(make_row(5, "It is 5.").solution, problem_id=edges.problem.id),
    )
    rows = [edges, over, formula, wide, hostile, twin]
    with ViewerHere(write_run(tmp_path_factory.mktemp("opinions") / "run", rows, None)) as process:
        process.wait_for(len(rows))
        yield process


@pytest.fixture
def page(viewer: ViewerHere) -> Iterator[WebDriver]:
    with chromium() as browser:
        count_violations(browser)
        open_page(browser, viewer.address, "#list a", 6)
        yield browser
        assert logged_problems(browser) == [] and violations(browser) == []
        assert browser.execute_script("return window.executed") is None


def test_opinions_places_and_reasons_are_shown(page: WebDriver, viewer: ViewerHere) -> None:
    open_page(page, f"{viewer.origin}/?id=solution-0", ".steps li")
    facts = dict(
        zip(
            texts(page, ".solution-head dt"),
            texts(page, ".solution-head dd"),
            strict=True,
        )
    )
    assert facts["Consensus, same_location"] == "kept" and facts["rollouts"] == "step 1"
    assert facts["symbolic"] == "at or before step 1" and facts["critic"] == "unknown"
    assert texts(page, ".step mark") == ["2 + 2 = 5", "5."]
    assert texts(page, ".step:nth-child(2) .prose") == ["2 + 2 = 5, so 5."]
    reasons = ["symbolic, “2 + 2 = 5”: 2 + 2 is 4", "symbolic, “5.”: why"]
    assert texts(page, ".step:nth-child(2) .reasons li") == reasons
    assert [
        mark.get_attribute("title") for mark in page.find_elements("css selector", ".step mark")
    ] == reasons


def test_places_that_overlap_and_what_is_not_kept(page: WebDriver, viewer: ViewerHere) -> None:
    assert texts(page, "[name=mark] option") == ["all solutions", "not kept: opinions disagree (1)"]
    assert page.find_element("css selector", "[name=mark]").is_displayed()
    open_page(page, f"{viewer.origin}/?id=solution-1&mark=unkept", ".steps li")
    until(lambda: ids(page) == ["solution-1"], "the filter")
    assert "not kept" in texts(page, "#list .chip")
    assert "not kept" in texts(page, ".solution-head dd .chip")
    assert texts(page, ".step mark") == ["2 + ", "2 = 5", ", s"]
    assert [
        title.count("symbolic")
        for title in [
            mark.get_attribute("title") or ""
            for mark in page.find_elements("css selector", ".step mark")
        ]
    ] == [1, 2, 1]


def test_places_are_counted_in_characters(page: WebDriver, viewer: ViewerHere) -> None:
    open_page(page, f"{viewer.origin}/?id=solution-3", ".steps li")
    assert texts(page, ".step mark") == ["2"]  # the other marked place lies beyond the text
    open_page(page, f"{viewer.origin}/?id=solution-3&raw=1", ".steps li")
    assert texts(page, ".step:nth-child(2) .prose") == ["😀😀 2 \\u202e+ 2 = 5"]


def test_reasons_and_names_are_text(page: WebDriver, viewer: ViewerHere) -> None:
    open_page(page, f"{viewer.origin}/?id=solution-4", ".steps li")
    assert texts(page, ".step mark") == ["<b>5</b>"]
    (reason,) = texts(page, ".reasons li")
    assert reason == "<i>judge</i>, “<b>5</b>”: " + HOSTILE.replace("\x1b", "\\u001b").replace(
        "\u202e", "\\u202e"
    )
    assert "<i>judge</i>" in texts(page, ".solution-head dt")
    assert not page.find_elements("css selector", "#solution img, #solution script, #solution i")
