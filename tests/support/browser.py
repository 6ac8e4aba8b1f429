"""Headless Chromium for tests."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.remote.webdriver import WebDriver

WAIT_S = 60.0
T = TypeVar("T")

AXE = Path(__file__).parents[1] / "report" / "vendor" / "axe-core" / "axe.min.js"
WATCH = """
window.violations = [];
addEventListener("securitypolicyviolation", (event) => violations.push(event.effectiveDirective));
"""


@contextmanager
def chromium(
    *, width: int = 1440, height: int = 900, dark: bool = False, offline: bool = False
) -> Iterator[WebDriver]:
    """Start a new browser whose network reaches only this machine.

    Args:
        width: width of the page in pixels.
        height: height of the page in pixels.
        dark: True if the system prefers dark colours.
        offline: True to block this machine, too.
    """
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in (
        "--headless=new",
        "--no-sandbox",  # root may not have a sandbox, and the tests open only their own pages
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--hide-scrollbars",
        "--force-color-profile=srgb",
        # requests to other machines go to a proxy that does not exist
        "--proxy-server=http://127.0.0.1:9",
        f"--proxy-bypass-list={'' if offline else '127.0.0.1'}",
        f"--window-size={width},{height}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    os.environ.setdefault("NO_PROXY", "localhost,127.0.0.1")
    browser = webdriver.Chrome(options, Service("/usr/bin/chromedriver"))
    try:
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        yield browser
    finally:
        browser.quit()


def until(condition: Callable[[], T | None], message: str) -> T:
    """Wait until a function returns a true value, and return this value.

    Raises:
        TimeoutError: no true value is returned within `WAIT_S` seconds.
    """
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise TimeoutError(message)


def texts(browser: WebDriver, selector: str) -> list[str]:
    """Return the text of all matching elements, including hidden ones."""
    script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
    contents: list[str] = browser.execute_script(script, selector)
    return contents


def logged_problems(browser: WebDriver) -> list[dict[str, Any]]:
    """Return the browser's log entries of errors and warnings since the last call."""
    entries: list[dict[str, Any]] = browser.get_log("browser")  # type: ignore[no-untyped-call]
    return [entry for entry in entries if entry["level"] in ("SEVERE", "WARNING")]


def count_violations(browser: WebDriver) -> None:
    """Count violations of the Content-Security-Policy, from the next page on."""
    browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})


def violations(browser: WebDriver) -> list[str]:
    reported: list[str] = browser.execute_script("return window.violations")
    return reported


def accessibility_violations(browser: WebDriver) -> list[tuple[str, list[Any]]]:
    """Return the violations that axe-core rates as serious or critical."""
    browser.execute_script(AXE.read_text(encoding="utf-8"))
    script = "const done = arguments[0]; axe.run().then((r) => done(r.violations))"
    report = browser.execute_async_script(script)
    return [
        (v["id"], [(n["target"], n["failureSummary"]) for n in v["nodes"][:3]])
        for v in report
        if v["impact"] in ("serious", "critical")
    ]


def ids(browser: WebDriver) -> list[str]:
    """Return the ids of the solutions in the page's list."""
    script = "return [...document.querySelectorAll('#list a')].map(e => e.dataset.id)"
    solution_ids: list[str] = browser.execute_script(script)
    return solution_ids


def click(browser: WebDriver, selector: str) -> None:
    until(lambda: browser.find_elements("css selector", selector), selector)[0].click()


def press(browser: WebDriver, *keys: str) -> None:
    ActionChains(browser).send_keys(*keys).perform()


def open_page(browser: WebDriver, address: str, selector: str, count: int = 1) -> None:
    """Open an address and wait until the page has `count` elements, or more."""
    browser.get(address)
    until(lambda: len(texts(browser, selector)) >= count, f"{selector} of {address}")
