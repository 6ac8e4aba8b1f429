"""The report and the viewer in a real browser: they work, nothing executes, everybody can read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver

from tests.support.browser import (
    chromium,
    click,
    complaints,
    count_violations,
    ids,
    press,
    serious,
    texts,
    until,
    violations,
)
from tests.support.shown import (
    HOSTILE,
    hostile_run,
    plain_run,
    report_page,
)
from tests.support.viewer_process import ViewerProcess

pytestmark = pytest.mark.browser

INKS = """
const texts = [...document.querySelectorAll(".plot svg text")];
return [...new Set(texts.map((text) => getComputedStyle(text).fill))];
"""
"""Of the plots' texts."""


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewerProcess]:
    folder = tmp_path_factory.mktemp("plain")
    with ViewerProcess(plain_run(folder / "one")) as process:
        process.wait_for(3)
        yield process


@pytest.fixture
def page(viewer: ViewerProcess) -> Iterator[WebDriver]:
    with chromium() as browser:
        browser.get(viewer.address)
        until(lambda: len(ids(browser)) == 3, "the list")
        yield browser
        assert complaints(browser) == []


def test_a_report_opens_from_disk_without_network(tmp_path: Path) -> None:
    report = report_page([plain_run(tmp_path / "run")], str(tmp_path / "report.html"))
    with chromium(offline=True) as browser:
        count_violations(browser)
        browser.get(report.as_uri())
        assert len(browser.find_elements("css selector", ".plot svg")) == 4
        assert browser.execute_script("return performance.getEntriesByType('resource')") == []
        assert complaints(browser) == [] and violations(browser) == []
        for dark in ("light", "dark"):
            click(browser, "#theme")
            root = browser.find_element("css selector", "html")
            assert root.get_attribute("data-theme") == dark
            assert serious(browser) == []


def test_plots_need_no_scripts_and_are_printed_on_light_paper(tmp_path: Path) -> None:
    report = report_page([plain_run(tmp_path / "run")], str(tmp_path / "report.html"))
    with chromium(dark=True) as browser:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        browser.get(report.as_uri())
        assert browser.execute_script(INKS) == ["rgb(232, 230, 225)"]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        assert browser.execute_script(INKS) == ["rgb(29, 31, 35)"]
        shown = browser.find_elements("css selector", ".plot svg")
        assert [plot.is_displayed() for plot in shown] == [True] * 4


def test_a_step_opens_its_rollouts_and_says_why(page: WebDriver) -> None:
    click(page, "#list a[data-id='solution-1']")
    click(page, ".step[data-step='0'] .open")
    until(lambda: len(texts(page, ".rollout-list li")) == 4, "rollouts")
    rows = lambda: [row.text for row in page.find_elements("css selector", ".rollouts tbody tr")]  # noqa: E731
    until(lambda: "differs from the gold" in " ".join(rows()), "the grades")
    assert rows() == [
        "3 3 right equals the gold, as text",
        "4 1 wrong differs from the gold, as exact numbers",
    ]
    assert "3 of 4 right, 1 wrong" in texts(page, ".measures")[0]
    assert texts(page, ".step .word") == ["sound", "wrong", "wrong"]
    assert texts(page, ".step .chip.error") == ["first error by label"]
    everything = page.find_element("css selector", "body").text
    assert not any(word in everything for word in ("null", "undefined", "NaN", "[object"))


def test_filters_and_search_and_links_that_bring_back_the_view(page: WebDriver) -> None:
    page.execute_script(
        "const s = document.querySelector('[name=level]'); s.value = 'hard';"
        "s.dispatchEvent(new Event('change'))"
    )
    until(lambda: ids(page) == ["solution-1", "solution-2"], "the filter")
    press(page, "/")
    press(page, "zebra")
    until(lambda: ids(page) == ["solution-2"], "the search")
    until(lambda: texts(page, "#found") == ["1 solution found"], "the count")
    click(page, "#list a")
    click(page, ".step[data-step='0'] .open")
    until(lambda: len(texts(page, ".rollout-list li")) == 4, "rollouts")
    link = page.current_url
    assert "token" not in link
    page.switch_to.new_window("tab")
    page.get(link)
    until(lambda: len(texts(page, ".rollout-list li")) == 4, "rollouts again")
    assert ids(page) == ["solution-2"] and "Find the zebra." in texts(page, ".problem-text .prose")
    script = "return ['#search', '[name=level]'].map(s => document.querySelector(s).value)"
    assert page.execute_script(script) == ["zebra", "hard"]
    page.back()
    page.get(link)
    click(page, "#clear")
    until(lambda: len(ids(page)) == 3, "everything again")


def test_it_is_used_without_a_mouse(page: WebDriver) -> None:
    heading = lambda: texts(page, "#solution h2")  # noqa: E731
    for key, expected in (("j", 0), ("j", 1), ("j", 2), ("j", 2), ("k", 1)):
        press(page, key)
        until(lambda e=expected: heading() == [f"problem-{e}, sample 0"], f"{key} to {expected}")
    press(page, "n")
    press(page, Keys.ENTER)
    until(lambda: len(texts(page, ".rollout-list li")) == 4, "rollouts by Enter")
    assert "step=0" in page.current_url
    press(page, Keys.ESCAPE)
    until(lambda: "step=" not in page.current_url, "the step is closed")
    press(page, Keys.ESCAPE)
    until(lambda: "id=" not in page.current_url, "the solution is closed")
    press(page, "?")
    until(lambda: page.execute_script("return document.querySelector('dialog').open"), "the keys")
    press(page, Keys.ESCAPE)
    press(page, "/")
    assert page.switch_to.active_element.get_attribute("id") == "search"
    press(page, "j")
    assert heading()[0] == "What is found"


def test_latex_is_typeset_or_shown_as_it_was_written(page: WebDriver) -> None:
    click(page, "#list a[data-id='solution-0']")
    until(lambda: len(texts(page, ".steps .katex")) == 3, "typeset")
    press(page, "t")
    until(lambda: "We add $1$ and $2$.\n" in texts(page, ".steps .prose"), "as written")
    assert texts(page, ".katex") == []


def test_broken_latex_stays_text_and_long_lines_are_cut(tmp_path: Path) -> None:
    with ViewerProcess(hostile_run(tmp_path / "run")) as process, chromium() as browser:
        process.wait_for(len(HOSTILE))
        names = list(HOSTILE)
        browser.get(f"{process.address}&id=solution-{names.index('broken LaTeX')}")
        until(lambda: texts(browser, ".step"), "steps")
        until(lambda: texts(browser, ".steps .math.broken"), "broken formulas")
        assert r"$\frac{1}{$ and" in texts(browser, ".steps .prose")[0]
        browser.get(f"{process.address}&id=solution-{names.index('long line')}")
        until(lambda: texts(browser, ".steps .rest"), "a cut")
        assert "20,000 of 1,000,001 characters shown." in texts(browser, ".steps .rest")[0]
        click(browser, ".steps .rest button")
        until(lambda: "40,000 of" in texts(browser, ".steps .rest")[0], "more of it")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1440, 420])
def test_axe_finds_nothing_serious(viewer: ViewerProcess, width: int, dark: bool) -> None:
    with chromium(width=width, dark=dark) as browser:
        browser.get(viewer.address)
        until(lambda: len(ids(browser)) == 3, "the list")
        assert serious(browser) == []
        browser.get(f"{viewer.origin}/?id=solution-1&step=0")
        until(lambda: len(texts(browser, ".rollout-list li")) == 4, "rollouts")
        assert serious(browser) == []
        wide = "return document.documentElement.scrollWidth"
        assert browser.execute_script(wide) <= width
