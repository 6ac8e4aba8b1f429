"""A headless Chromium, for tests."""

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
    """A fresh browser without network but for this machine.

    Args:
        width: of the page, pixels.
        height: of the page, pixels.
        dark: what the system prefers.
        offline: not even this machine.
    """
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in (
        "--headless=new",
        "--no-sandbox",  # root may not have one; what is opened are pages of our own
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--hide-scrollbars",
        "--force-color-profile=srgb",
        # whatever is not this machine goes to a proxy that does not exist
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


def until(found: Callable[[], T | None], what: str) -> T:
    """Wait for something true.

    Raises:
        TimeoutError: it does not come.
    """
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        value = found()
        if value:
            return value
        time.sleep(0.05)
    raise TimeoutError(what)


def texts(browser: WebDriver, selector: str) -> list[str]:
    """What the elements say, those that are not shown included."""
    script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
    found: list[str] = browser.execute_script(script, selector)
    return found


def complaints(browser: WebDriver) -> list[dict[str, Any]]:
    """What the browser has logged as an error or a warning since the last call."""
    entries: list[dict[str, Any]] = browser.get_log("browser")  # type: ignore[no-untyped-call]
    return [entry for entry in entries if entry["level"] in ("SEVERE", "WARNING")]


def picture(browser: WebDriver, path: Path) -> None:
    """Save what is in the window."""
    path.parent.mkdir(parents=True, exist_ok=True)
    browser.save_screenshot(str(path))


def count_violations(browser: WebDriver) -> None:
    """Count, from the next page on, what the Content-Security-Policy has stopped."""
    browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})


def violations(browser: WebDriver) -> list[str]:
    found: list[str] = browser.execute_script("return window.violations")
    return found


def serious(browser: WebDriver) -> list[tuple[str, list[Any]]]:
    """What axe-core finds serious or critical."""
    browser.execute_script(AXE.read_text(encoding="utf-8"))
    script = "const done = arguments[0]; axe.run().then((r) => done(r.violations))"
    found = browser.execute_async_script(script)
    return [
        (v["id"], [(n["target"], n["failureSummary"]) for n in v["nodes"][:3]])
        for v in found
        if v["impact"] in ("serious", "critical")
    ]


def ids(browser: WebDriver) -> list[str]:
    """Of the solutions in the list."""
    script = "return [...document.querySelectorAll('#list a')].map(e => e.dataset.id)"
    found: list[str] = browser.execute_script(script)
    return found


def click(browser: WebDriver, selector: str) -> None:
    until(lambda: browser.find_elements("css selector", selector), selector)[0].click()


def press(browser: WebDriver, *keys: str) -> None:
    ActionChains(browser).send_keys(*keys).perform()
