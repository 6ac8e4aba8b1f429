"""Pictures of the report and of the viewer, in both themes and two widths, to be looked at.

    python -m tests.support.screenshots RUN [RUN...] --out FOLDER

RUN as for `mclabel view` and `mclabel report`, e.g. runs/quickstart. `viewer-wide-light.png` is
the one in the README.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from selenium.webdriver.remote.webdriver import WebDriver

from tests.support.browser import chromium, picture, texts, until
from tests.support.shown import report_page
from tests.support.viewer_process import ViewerProcess

WIDTHS = {"wide": (1440, 940), "narrow": (390, 844)}
FOUND = "mark=truth&outcome=wrong"
"""What is shown: wrong solutions whose label differs from truth."""
SETTLE_S = 1.0
MAX_HEIGHT = 14_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    report = report_page(args.runs, str(args.out / "report.html"))
    with ViewerProcess(*args.runs) as viewer:
        viewer.wait_for(1)
        row = deceiving(viewer)
        solution = f"{FOUND}&id={row['solution_id']}"
        others = [
            sample["solution_id"]
            for sample in viewer.get("solution", id=row["solution_id"])["samples"]
            if sample["solution_id"] != row["solution_id"]
        ]
        viewer.get("scores", id=row["solution_id"])  # loads the scorers
        for name, (width, height) in WIDTHS.items():
            for dark in (False, True):
                theme = "dark" if dark else "light"
                with chromium(width=width, height=height, dark=dark) as browser:
                    browser.get(f"{viewer.address}&{FOUND}")
                    until(lambda b=browser: texts(b, "#list a"), "the list")
                    shoot(browser, args.out / f"list-{name}-{theme}.png")
                    browser.get(f"{viewer.origin}/?sum=1")
                    until(lambda b=browser: texts(b, ".charts section"), "the charts")
                    shoot(browser, args.out / f"summary-{name}-{theme}.png")
                    browser.get(f"{viewer.origin}/?{solution}&with={others[0]}")
                    until(lambda b=browser: len(texts(b, ".side")) == 2, "both samples")
                    shoot(browser, args.out / f"pair-{name}-{theme}.png")
                    browser.get(f"{viewer.origin}/?{solution}")
                    until(lambda b=browser: texts(b, ".score b"), "the scores")
                    shoot(browser, args.out / f"viewer-{name}-{theme}.png")
                    browser.get(f"{viewer.origin}/?{solution}&step={(row['first_error'] or 1) - 1}")
                    until(lambda b=browser: texts(b, ".rollout-list li"), "rollouts")
                    shoot(browser, args.out / f"rollouts-{name}-{theme}.png")
                    browser.get(report.as_uri())
                    shoot(browser, args.out / f"head-{name}-{theme}.png")
                    whole(browser, width)
                    shoot(browser, args.out / f"report-{name}-{theme}.png")


def deceiving(viewer: ViewerProcess) -> dict[str, Any]:
    """Of short solutions the one whose steps have the highest value from the true error on.

    Shards lie in no order that stays, so the choice does not go by it.
    """
    rows = viewer.get("solutions", mark="truth", outcome="wrong", limit=200)["rows"]

    def height(row: dict[str, Any]) -> tuple[float, str]:
        truth, labelled = row["truth"], row["first_error"]
        after = [] if None in (truth, labelled) else row["vals"][truth:labelled]
        known = [value for value in after if value is not None]
        short = 3 <= row["num_steps"] <= 5
        return (max(known, default=0.0) if short else -1.0), row["solution_id"]

    return max(rows, key=height)


def shoot(browser: WebDriver, path: Path) -> None:
    time.sleep(SETTLE_S)
    picture(browser, path)
    print(path)


def whole(browser: WebDriver, width: int) -> None:
    """Make the window as high as the page, so that all of it is drawn and in the picture."""
    height = browser.execute_script("return document.documentElement.scrollHeight")
    size = {"width": width, "height": min(height, MAX_HEIGHT)}
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {**size, "deviceScaleFactor": 1, "mobile": False}
    )


if __name__ == "__main__":
    main()
