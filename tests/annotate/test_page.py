"""The page of `mclabel annotate` in a real browser, with only the keyboard and with the mouse."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from mclabel.annotate.folder import AnnotationFolder
from mclabel.core.records import Outcome
from tests.support.annotated import AnnotateProcess
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
from tests.support.shown import HOSTILE, solution, write_run

pytestmark = pytest.mark.browser


def test_by_keyboard_alone_and_through_a_lost_connection(tmp_path: Path) -> None:
    hostile = HOSTILE["script"] + HOSTILE["handler"] + HOSTILE["LaTeX html"]
    rows = [
        solution(n, ["We add $1$ and $2$.\n", f"{hostile} That makes 5.\n", "So \\boxed{5}."],
                 [4, 0, 0], outcome=Outcome.WRONG, prediction="5")
        for n in range(4)
    ]  # fmt: skip
    run, out = write_run(tmp_path / "run", rows, None), tmp_path / "out"
    rules = tmp_path / "rules.md"
    rules.write_text("# Rules\n<b>Bad</b> is bad.", encoding="utf-8")
    arguments = (run, "-o", str(out), "--guidelines", str(rules))
    with chromium() as browser:
        count_violations(browser)
        with AnnotateProcess(*arguments) as page:
            order = page.get("/api/state", "me")["items"]
            open_page(browser, page.addresses["me"], ".step", 3)
            press(browser, "1", "3")
            assert texts(browser, ".ratings .run") == [""] * 3  # no labels of the run are shown yet
            assert logged_problems(browser) == violations(browser) == []
            assert accessibility_violations(browser) == []
            logged_problems(browser)  # clears messages of axe-core itself
            press(browser, Keys.ENTER)
            until(lambda: "1 of 4" in texts(browser, "#progress")[0], "the first is submitted")
            until(lambda: texts(browser, "#before span"), "what the run says")
            assert texts(browser, "#before span") == [
                "Submitted. First error: you step 1, the run step 1."
            ]
            assert accessibility_violations(browser) == []
            logged_problems(browser)
            press(browser, "x")  # skipping needs a reason
            until(lambda: "Write the reason" in texts(browser, "#fault")[0], "the reason asked for")
            press(browser, "too hard", Keys.ESCAPE, "x")
            until(lambda: "2 of 4" in texts(browser, "#progress")[0], "given up")
            os.kill(page.process.pid, signal.SIGKILL)
            page.process.wait()
            press(browser, "1", "1", "u", "2", "4", Keys.ENTER)
            until(lambda: "1 not sent" in texts(browser, "#unsent")[0], "kept in the browser")
            port = str(page.port)
        with AnnotateProcess(*arguments, "--port", port) as page:
            browser.get(page.addresses["me"])
            until(lambda: texts(browser, "#unsent") == [""], "sent later")
            until(lambda: len(texts(browser, ".step")) == 3, "the last")
            for step in range(3):
                click(browser, f".step[data-step='{step}'] [data-word=good]")
            click(browser, "#submit")
            until(
                lambda: texts(browser, "#solution h2") == ["All solutions are submitted."],
                "the end",
            )
            assert texts(browser, "#guidelines pre") == ["# Rules\n<b>Bad</b> is bad."]
        assert violations(browser) == [] and not browser.execute_script("return window.executed")
        # What the browser logs depends on how far a request was when the server was killed.
        lost = re.compile("ERR_CONNECTION_(REFUSED|RESET|CLOSED)|ERR_EMPTY_RESPONSE")
        assert [c for c in logged_problems(browser) if not lost.search(c["message"])] == []
    last_events = AnnotationFolder.read(str(out)).last_events
    recorded = [
        (last_events["me", item_id].ratings, last_events["me", item_id].finish) for item_id in order
    ]
    assert recorded == [
        (("good", "bad", None), "found_error"),
        ((None, None, None), "give_up"),
        (("good", "okay", "unsure"), "solution"),
        (("good", "good", "good"), "solution"),
    ]
    assert last_events["me", order[1]].note == "too hard"


def test_the_overseer_sees_where_people_differ_and_settles_it(tmp_path: Path) -> None:
    hostile = HOSTILE["script"] + HOSTILE["handler"] + HOSTILE["LaTeX html"]
    rows = [
        solution(n, [f"{hostile} $1$\n", "That makes 5.\n", "So \\boxed{5}."], [4, 0, 0],
                 problem=f"{hostile} problem {n}", answer=hostile)
        for n in range(2)
    ]  # fmt: skip
    run, out = write_run(tmp_path / "run", rows, None), tmp_path / "out"
    begun = (run, "-o", str(out), "--people", "ana,ben", "--overlap", "1")
    with chromium() as browser, AnnotateProcess(*begun) as page:
        count_violations(browser)
        for person, word in (("ana", "bad"), ("ben", "good")):
            for solution_id in ("solution-0", "solution-1"):
                ratings = ["good", word if solution_id == "solution-1" else "good", "good"]
                ratings = [*ratings[:2], None] if "bad" in ratings else ratings
                assert (
                    page.post(page.opinion(person, solution_id, ratings, note=hostile), person)[0]
                    == 200
                )
        open_page(browser, page.addresses["overseer"], "#differ section h3")
        assert texts(browser, "#differ section h3") == ["Solution solution-1"]
        heads = texts(browser, "#differ thead th")
        assert sorted(heads) == ["Step", "ana: step 1", "ben: no error"]
        agreement = texts(browser, "#agreement")[0]
        assert "2 solutions with a verdict on the first error by two people" in agreement
        assert (
            logged_problems(browser) == violations(browser) == []
            and accessibility_violations(browser) == []
        )
        logged_problems(browser)  # clears messages of axe-core itself
        browser.execute_script("document.querySelector('#differ a').focus()")
        press(browser, Keys.ENTER)
        until(lambda: len(texts(browser, ".step")) == 3, "the page on which it is labelled")
        press(browser, "1", "1", "3", Keys.ENTER)
        until(lambda: "1 of 1" in texts(browser, "#progress")[0], "it is settled")
        assert accessibility_violations(browser) == []
        logged_problems(browser)
        click(browser, "#overview")
        until(lambda: texts(browser, "#count"), "the overview again")
        until(lambda: "you have settled 1" in texts(browser, "#count")[0], "one is settled")
        assert "overseer: step 2" in texts(browser, "#differ thead th")
        assert not browser.execute_script("return window.executed")
        assert logged_problems(browser) == violations(browser) == []
    assert AnnotationFolder.read(str(out)).last_events["overseer", "solution-1"].first_error == 2
