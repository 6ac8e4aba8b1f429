"""Pictures of the report and of the viewer, in both themes and two widths, to be looked at.

    python -m tests.report.screenshots RUN [RUN...] --out FOLDER

RUN as for `mclabel view` and `mclabel report`, e.g. runs/quickstart. `viewer-wide-light.png` is
the one in the README.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from selenium.webdriver.remote.webdriver import WebDriver

from mclabel.report.report import write_report
from tests.report.browser import chromium, picture, texts, until
from tests.viewer_process import ViewerProcess

WIDTHS = {"wide": (1440, 940), "narrow": (420, 860)}
FOUND = "mark=truth&outcome=wrong"
"""What is shown: wrong solutions whose label differs from truth."""
SETTLE_S = 1.0
MAX_HEIGHT = 14_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    report = write_report(args.runs, str(args.out / "report.html"))
    with ViewerProcess(*args.runs) as viewer:
        viewer.wait_for(1)
        rows = viewer.get("solutions", mark="truth", outcome="wrong", limit=20)["rows"]
        row = next(
            (r for r in rows if (r["first_error"] or 0) >= 3 and r["truth"] is not None), rows[0]
        )
        solution = f"{FOUND}&id={row['solution_id']}"
        viewer.get("scores", id=row["solution_id"])  # loads the scorers
        for name, (width, height) in WIDTHS.items():
            for dark in (False, True):
                theme = "dark" if dark else "light"
                with chromium(width=width, height=height, dark=dark) as browser:
                    browser.get(f"{viewer.address}&{FOUND}")
                    until(lambda b=browser: texts(b, "#list a"), "the list")
                    shoot(browser, args.out / f"list-{name}-{theme}.png")
                    browser.get(f"{viewer.origin}/?{solution}")
                    until(lambda b=browser: texts(b, ".score b"), "the scores")
                    shoot(browser, args.out / f"viewer-{name}-{theme}.png")
                    browser.get(f"{viewer.origin}/?{solution}&step={(row['first_error'] or 1) - 1}")
                    until(lambda b=browser: texts(b, ".rollout-list li"), "rollouts")
                    shoot(browser, args.out / f"rollouts-{name}-{theme}.png")
                    browser.get(report.as_uri())
                    whole(browser, width)
                    shoot(browser, args.out / f"report-{name}-{theme}.png")


def shoot(browser: WebDriver, path: Path) -> None:
    time.sleep(SETTLE_S)
    picture(browser, path)
    print(path)


def whole(browser: WebDriver, width: int) -> None:
    """Make the window as high as the page, so that all of it is drawn and in the picture."""
    plots = "return document.querySelectorAll('.plot:not(:has(svg))').length"
    for _ in range(2):
        height = browser.execute_script("return document.documentElement.scrollHeight")
        size = {"width": width, "height": min(height, MAX_HEIGHT)}
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride", {**size, "deviceScaleFactor": 1, "mobile": False}
        )
        until(lambda: browser.execute_script(plots) == 0, "the plots")


if __name__ == "__main__":
    main()
