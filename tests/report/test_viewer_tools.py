"""Downloads, copies and notes in the viewer, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver

from tests.support.browser import (
    accessibility_violations,
    chromium,
    click,
    count_violations,
    logged_problems,
    open_page,
    press,
    texts,
    until,
    violations,
)
from tests.support.shown import long_run, plain_run, twin_run
from tests.support.viewer_process import ViewerHere

pytestmark = pytest.mark.browser

CLIPBOARD = ["clipboardReadWrite", "clipboardSanitizedWrite"]


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewerHere]:
    folder = tmp_path_factory.mktemp("tools")
    with ViewerHere(plain_run(folder / "one"), twin_run(folder / "two")) as process:
        process.wait_for(3)
        yield process


@pytest.fixture
def page(viewer: ViewerHere) -> Iterator[WebDriver]:
    with chromium() as browser:
        count_violations(browser)
        open_page(browser, viewer.address, "#list a", 3)
        yield browser
        assert logged_problems(browser) == [] and violations(browser) == []


def read_value(browser: WebDriver, selector: str) -> Any:
    return browser.execute_script(f"return document.querySelector('{selector}').value")


def is_pressed(browser: WebDriver, selector: str) -> bool:
    return browser.find_element("css selector", selector).get_attribute("aria-pressed") == "true"


def await_result(browser: WebDriver, words: str) -> None:
    until(lambda: words in texts(browser, "#export-result")[0], words)


def download_lines(browser: WebDriver, folder: Path, button: str) -> list[Any]:
    """Press a button that downloads a file, and return the file's lines."""
    folder.mkdir()
    browser.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)}
    )
    click(browser, button)
    written = lambda: next((p for p in folder.glob("*.jsonl") if p.stat().st_size), None)  # noqa: E731
    return [
        json.loads(line)
        for line in until(written, "the file").read_text(encoding="utf-8").splitlines()
    ]


def copy_lines(browser: WebDriver, viewer: ViewerHere, button: str, done: str) -> list[Any]:
    """Press a button that copies lines to the clipboard, and return the lines."""
    browser.execute_cdp_cmd(
        "Browser.grantPermissions", {"origin": viewer.origin, "permissions": CLIPBOARD}
    )
    click(browser, button)
    until(lambda: done in browser.find_element("css selector", "body").text, done)
    text: str = browser.execute_async_script("navigator.clipboard.readText().then(arguments[0])")
    return [json.loads(line) for line in text.splitlines()]


def import_notes(browser: WebDriver, path: Path, lines: list[Any]) -> None:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    browser.find_element("css selector", "#import-notes").send_keys(str(path))


def test_what_the_filter_finds_is_written_and_copied(
    page: WebDriver, viewer: ViewerHere, tmp_path: Path
) -> None:
    open_page(page, f"{viewer.origin}/?level=hard&id=solution-1", ".steps li")
    press(page, "f")
    until(lambda: is_pressed(page, "#flag"), "the flag")
    press(page, "x")
    rows = download_lines(page, tmp_path / "found", "#save-found")
    assert [row["solution_id"] for row in rows] == ["solution-1", "solution-2"]
    assert rows[0] == {
        **viewer.get("export", level="hard")["rows"][0],
        "run": "one",
        "flag": True,
        "note": "",
    }
    await_result(page, "2 solutions written to a file.")
    assert copy_lines(page, viewer, "#copy-found", "2 solutions copied.") == rows


def test_flags_and_notes_are_kept_by_run_and_travel_as_a_file(
    page: WebDriver, viewer: ViewerHere, tmp_path: Path
) -> None:
    open_page(page, f"{viewer.origin}/?id=solution-1", ".steps li")
    press(page, "e")
    press(page, "looks <img src=x onerror=alert()>; f and x are no keys here")
    press(page, Keys.ESCAPE)
    until(lambda: texts(page, "#saved") == ["stored in this browser"], "the note is kept")
    press(page, "f")
    until(lambda: texts(page, "#list .mine .chip") == ["⚑ flagged, note"], "the list says so")
    page.refresh()
    until(lambda: is_pressed(page, "#flag") if texts(page, "#flag") else False, "kept")
    assert read_value(page, "#note").startswith("looks <img")
    open_page(
        page, f"{viewer.origin}/?run=1&id=solution-1", ".steps li"
    )  # the same id in another run
    assert read_value(page, "#note") == "" and not is_pressed(page, "#flag")
    press(page, "x")
    notes = download_lines(page, tmp_path / "notes", "#save-notes")
    assert [(n["run_name"], n["solution_id"], n["flag"]) for n in notes] == [
        ("one", "solution-1", True)
    ]
    with chromium() as other_page:
        count_violations(other_page)
        open_page(other_page, viewer.address, "#list a", 3)
        press(other_page, "x")
        import_notes(
            other_page,
            tmp_path / "notes.jsonl",
            [*notes, 5, {}, {**notes[0], "flag": 1}, {**notes[0], "solution_id": "x" * 999}],
        )
        await_result(other_page, "1 note imported, 4 lines without a note, the first is line 2.")
        import_notes(
            other_page,
            tmp_path / "older.jsonl",
            [{**notes[0], "at": "2001-01-01T00:00:00Z", "note": "older"}],
        )
        await_result(
            other_page, "0 notes imported, 1 already stored in the same or a newer version."
        )
        click(other_page, "#noted-list button")
        until(lambda: texts(other_page, ".steps li"), "the solution")
        assert read_value(other_page, "#note") == notes[0]["note"] and is_pressed(
            other_page, "#flag"
        )
        press(other_page, "x")
        click(other_page, "#drop-notes")
        other_page.switch_to.alert.accept()
        await_result(other_page, "1 note deleted.")
        other_page.refresh()
        until(lambda: texts(other_page, ".steps li"), "the solution again")
        assert read_value(other_page, "#note") == "" and violations(other_page) == []


def test_a_note_on_another_text_says_so(
    page: WebDriver, viewer: ViewerHere, tmp_path: Path
) -> None:
    open_page(page, f"{viewer.origin}/?id=solution-1", ".steps li")
    press(page, "f")
    press(page, "x")
    [note] = download_lines(page, tmp_path / "notes", "#save-notes")
    import_notes(
        page,
        tmp_path / "changed.jsonl",
        [{**note, "digest": "0" * 16, "at": "2999-01-01T00:00:00Z"}],
    )
    await_result(page, "1 note imported")
    until(lambda: "different solution text" in texts(page, "#stale")[0], "the warning")


def test_a_browser_that_keeps_nothing_says_so(page: WebDriver, viewer: ViewerHere) -> None:
    open_page(page, f"{viewer.origin}/?id=solution-1", ".steps li")
    page.execute_script(
        "Storage.prototype.setItem = () => { throw new DOMException('', 'QuotaExceededError') }"
    )
    press(page, "f")
    until(lambda: "cannot store more notes" in texts(page, "#fault")[0], "the fault")
    # kept while the page is open
    assert is_pressed(page, "#flag") or texts(page, "#list .mine .chip")
    logged_problems(page)  # clears the logged error


def test_two_samples_stand_side_by_side(page: WebDriver, viewer: ViewerHere) -> None:
    open_page(page, f"{viewer.origin}/?run=1&id=solution-0", ".steps li")
    press(page, "c")
    until(lambda: len(texts(page, ".side")) == 2, "both")
    assert texts(page, ".compared > .quiet") == ["Their first step is the same."]
    assert texts(page, ".side h4") == ["Sample 0", "Sample 1"]
    assert texts(page, ".side .chip:not([class*=' '])") == []
    assert (
        page.execute_script(
            "return [...document.querySelectorAll('.step')]"
            ".map(e => e.innerText.includes('same in'))"
        )
        == [True, False, False] * 2
    )
    positions = page.execute_script(
        "return [...document.querySelectorAll('.step')].map(e => e.getBoundingClientRect().top)"
    )
    assert positions[:3] == positions[3:]  # the steps are aligned in rows
    open_page(page, page.current_url, ".side", 2)
    press(page, "c")  # after the last sample, one solution is shown alone
    until(lambda: not texts(page, ".side") and texts(page, ".steps li"), "alone")
    page.execute_script(
        "const s = document.querySelector('#with'); s.value = 'solution-1';"
        "s.dispatchEvent(new Event('change'))"
    )
    until(lambda: len(texts(page, ".side")) == 2, "both, by the choice")
    press(page, Keys.ESCAPE)
    until(lambda: "with=" not in page.current_url and "id=solution-0" in page.current_url, "closed")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_axe_finds_nothing_serious(viewer: ViewerHere, width: int, dark: bool) -> None:
    with chromium(width=width, dark=dark) as browser:
        for address, selector in (
            (f"{viewer.address}&sum=1", ".charts section"),
            (f"{viewer.origin}/", "#list a"),
            (f"{viewer.origin}/?id=solution-1&step=0", ".rollout-list li"),
        ):
            open_page(browser, address, selector)
            assert accessibility_violations(browser) == []
        open_page(browser, f"{viewer.origin}/?run=1&id=solution-0&with=solution-1", ".steps li")
        press(browser, "f")
        assert accessibility_violations(browser) == []
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        press(browser, "x")
        until(lambda: texts(browser, "#noted-list li"), "the dialog")
        assert accessibility_violations(browser) == []


def test_a_long_solution_is_drawn_as_far_as_it_is_looked_at(tmp_path: Path) -> None:
    with ViewerHere(long_run(tmp_path / "run", 450)) as viewer, chromium() as browser:
        viewer.wait_for(2)
        open_page(browser, viewer.address, "#list a", 2)
        assert {
            len(strip.find_elements("css selector", "span"))
            for strip in browser.find_elements("css selector", ".strip")
        } == {64}
        open_page(browser, f"{viewer.origin}/?id=solution-0", ".step", 100)
        browser.execute_script("document.querySelector('.rest').scrollIntoView()")
        until(lambda: len(texts(browser, ".step")) == 200, "those that follow")
        open_page(
            browser,
            f"{viewer.origin}/?id=solution-0&step=420",
            "[data-step='420'] .rollouts .prose",
        )
        (number,) = texts(browser, "[data-step='420'] .number")
        assert number.startswith("420")
        until(lambda: len(texts(browser, ".step")) == 450, "all steps")
        assert texts(browser, ".rest:not([hidden])") == []
        assert logged_problems(browser) == []
