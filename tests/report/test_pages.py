"""The report and the viewer in a real browser: they work, execute no text, and are accessible."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver

from mclabel.data.exchange.job import import_file
from tests.support.browser import (
    accessibility_violations,
    chromium,
    click,
    count_violations,
    ids,
    logged_problems,
    open_page,
    press,
    texts,
    until,
    violations,
)
from tests.support.shown import (
    CONFIG,
    HOSTILE,
    hostile_run,
    plain_run,
    report_page,
    solution,
    write_run,
)
from tests.support.viewer_process import ViewerHere

pytestmark = pytest.mark.browser

INKS = """
const texts = [...document.querySelectorAll(".plot svg text")];
return [...new Set(texts.map((text) => getComputedStyle(text).fill))];
"""
"""A script that returns the colours of the texts in plots."""


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewerHere]:
    with ViewerHere(plain_run(tmp_path_factory.mktemp("plain") / "one")) as process:
        process.wait_for(3)
        yield process


@pytest.fixture
def page(viewer: ViewerHere) -> Iterator[WebDriver]:
    with chromium() as browser:
        open_page(browser, viewer.address, "#list a", 3)
        yield browser
        assert logged_problems(browser) == []


def test_a_report_opens_from_disk_without_network(tmp_path: Path) -> None:
    report = report_page([plain_run(tmp_path / "run")], str(tmp_path / "report.html"))
    with chromium(offline=True) as browser:
        count_violations(browser)
        browser.get(report.as_uri())
        assert len(browser.find_elements("css selector", ".plot svg")) == 3
        assert browser.execute_script("return performance.getEntriesByType('resource')") == []
        assert logged_problems(browser) == [] and violations(browser) == []
        for dark in ("light", "dark"):
            click(browser, "#theme")
            assert browser.find_element("css selector", "html").get_attribute("data-theme") == dark
            assert accessibility_violations(browser) == []


def test_plots_need_no_scripts_and_are_printed_on_light_paper(tmp_path: Path) -> None:
    report = report_page([plain_run(tmp_path / "run")], str(tmp_path / "report.html"))
    with chromium(dark=True) as browser:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        browser.get(report.as_uri())
        assert browser.execute_script(INKS) == ["rgb(232, 230, 225)"]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        assert browser.execute_script(INKS) == ["rgb(29, 31, 35)"]
        assert [
            plot.is_displayed() for plot in browser.find_elements("css selector", ".plot svg")
        ] == [True] * 3


def test_a_step_opens_its_rollouts_and_says_why(page: WebDriver) -> None:
    click(page, "#list a[data-id='solution-1']")
    click(page, ".step[data-step='0'] .open")
    until(lambda: len(texts(page, ".rollout-list li")) == 4, "rollouts")
    rows = lambda: [row.text for row in page.find_elements("css selector", ".rollouts tbody tr")]  # noqa: E731
    until(lambda: "differs from the gold answer" in " ".join(rows()), "the grades")
    assert rows() == [
        "3 3 right equals the gold answer, as text",
        "4 1 wrong differs from the gold answer, as exact numbers",
    ]
    assert texts(page, ".tally") == ["3 of 4 right", "0 of 4 right", "outcome"]
    assert "3 of 4 right, 1 wrong" in texts(page, ".opened > p")[0]
    assert texts(page, ".step .word") == ["sound", "wrong", "wrong"]
    assert texts(page, ".step .chip.error") == ["labelled first error"]
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
    open_page(page, link, ".rollout-list li", 4)
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
    assert heading()[0] == "Solutions found"


def test_latex_is_typeset_or_shown_as_it_was_written(page: WebDriver) -> None:
    click(page, "#list a[data-id='solution-0']")
    until(lambda: len(texts(page, ".steps .katex")) == 3, "typeset")
    press(page, "t")
    until(lambda: "We add $1$ and $2$.\n" in texts(page, ".steps .prose"), "as written")
    assert texts(page, ".katex") == []


def test_the_report_typesets_latex_and_runs_nothing_of_a_model(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "math",
        [
            solution(
                0,
                [r"\begin{align*} a &= b \\ &= c \end{align*}", r"It is \boxed{\frac{1}{2}}."],
                [0, 0],
            )
        ],
        None,
    )
    pages = [report_page([place], f"{place}.html") for place in (run, hostile_run(tmp_path / "h"))]
    with chromium(offline=True) as browser:
        count_violations(browser)
        browser.get(pages[0].as_uri())
        assert len(browser.find_elements("css selector", ".step mtable")) == 1
        assert len(browser.find_elements("css selector", ".step menclose mfrac")) == 1
        browser.get(pages[1].as_uri())
        assert browser.execute_script("return window.executed") is None
        assert logged_problems(browser) == [] and violations(browser) == []


def test_code_has_no_fences_and_its_gold_is_folded(tmp_path: Path) -> None:
    row = solution(
        0,
        ["```python\ndef f(x):\n", "    return x\n```"],
        [4, 0],
        answer='{"fn_name": "f", "inputs": [[1], [2]], "outputs": [1, 2]}',
    )
    row = replace(row, problem=replace(row.problem, answer_is_json=True))
    run = write_run(tmp_path / "run", [row], None, config={**CONFIG, "checker": {"kind": "code"}})
    page = report_page([run], f"{run}.html")
    with chromium() as browser, ViewerHere(run) as process:
        process.wait_for(1)
        for address in (page.as_uri(), f"{process.address}&id=solution-0"):
            open_page(browser, address, ".step")
            assert [text.rstrip() for text in texts(browser, ".steps.code .prose")] == [
                "def f(x):",
                "    return x",
            ]
            assert texts(browser, "dd summary") == ["2 tests"]


def test_imported_ids_are_shown_and_imported_labels_are_no_values(tmp_path: Path) -> None:
    rows = [
        {
            "id": f"gsm8k-{n}",
            "problem": "One?",
            "steps": ["a", "b", "c"],
            "label": n,
            "final_answer_correct": False,
        }
        for n in (0, 1)
    ]
    file, run = tmp_path / "rows.json", str(tmp_path / "run")
    file.write_text(json.dumps(rows))
    import_file(str(file), "processbench", run)
    with chromium() as browser, ViewerHere(run) as process:
        process.wait_for(2)
        open_page(browser, process.address, "#list a", 2)
        assert texts(browser, "#list .problem") == ["One?"]  # shown once for both samples
        assert texts(browser, "#list .answers") == ["gsm8k-0", "gsm8k-1"]
        press(browser, "/", "gsm8k-1")
        until(lambda: len(ids(browser)) == 1, "the search by id")
        click(browser, "#list a")
        until(lambda: texts(browser, ".step"), "the solution")
        assert texts(browser, "#solution h2") == ["gsm8k-1"]
        assert texts(browser, ".step .value") == ["", "", "?"]
        press(browser, "g")
        assert (
            browser.execute_script("return document.activeElement.closest('.step').dataset.step")
            == "1"
        )


def test_thirty_steps_stand_in_a_line_each(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "run",
        [
            solution(
                0,
                [f"{n} + 3 = {n + 3}, so we have {n + 3} apples.\n" for n in range(30)],
                [4] * 20 + [0] * 10,
            )
        ],
        None,
    )
    page = report_page([run], f"{run}.html")
    with chromium(width=1280) as browser, ViewerHere(run) as process:
        process.wait_for(1)
        for address in (page.as_uri(), f"{process.address}&id=solution-0"):
            open_page(browser, address, ".step", 30)
            assert browser.find_element("css selector", ".steps").size["height"] <= 1200


def test_broken_latex_stays_text_and_long_lines_are_cut(tmp_path: Path) -> None:
    with ViewerHere(hostile_run(tmp_path / "run")) as process, chromium() as browser:
        process.wait_for(len(HOSTILE))
        names = list(HOSTILE)
        long = f"{process.address}&id=solution-{names.index('long line')}"
        open_page(browser, f"{process.address}&id=solution-{names.index('broken LaTeX')}", ".step")
        until(lambda: texts(browser, ".steps .math.broken"), "broken formulas")
        assert r"$\frac{1}{$ and" in texts(browser, ".steps .prose")[0]
        open_page(browser, long, ".steps .rest")
        assert "20,000 of 1,000,001 characters shown." in texts(browser, ".steps .rest")[0]
        click(browser, ".steps .rest button")
        until(lambda: "40,000 of" in texts(browser, ".steps .rest")[0], "more of it")
