"""How large the page of a study is, how long a browser takes to open it, and how fast its front view answers.

    python benchmarks/page_speed.py [results/study]

Needs Chromium and playwright. Times are wall-clock, from the navigation to the last section drawn, the best of five.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

REDRAW = """() => {
  const select = document.querySelector("#front-kind"), times = [];
  for (let i = 0; i < 20; i++) {
    select.selectedIndex = i % 2;
    const began = performance.now();
    select.dispatchEvent(new Event("change"));
    times.push(performance.now() - began);
  }
  return times.sort((a, b) => a - b)[10];
}"""


def main(study: Path) -> None:
    from playwright.sync_api import sync_playwright
    from report.studies import write_study
    from report.test_beside import front

    from fedhv.report import page, read_study

    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        read = read_study([study])
        path = Path(temporary) / "index.html"
        path.write_text(page(read), encoding="utf-8")
        print(f"{len(read.runs)} runs: {path.stat().st_size / 1e6:.2f} MB")
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        tab = browser.new_context(viewport={"width": 1400, "height": 1000}).new_page()

        def opened(address: str) -> float:
            tab.goto("about:blank")
            began = time.perf_counter()
            tab.goto(address)
            tab.wait_for_selector("body[data-ready]", state="attached")
            return time.perf_counter() - began

        print(f"opens in {min(opened(path.as_uri()) for _ in range(5)):.2f} s (best of five)")
        session = tab.context.new_cdp_session(tab)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        opened(path.as_uri())
        found = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
        print(f"of that, CPU time of the page's main thread: {found['TaskDuration']:.2f} s")
        fronts = Path(temporary) / "fronts"
        write_study(fronts, ("uniform", "fedhv"), (0, 42), rounds=12)
        (fronts / "front.json").write_text(json.dumps(front(points=100)), encoding="utf-8")
        path.write_text(page(read_study([fronts])), encoding="utf-8")
        opened(path.as_uri())
        points = tab.locator("#front-chart .point").count()
        print(f"front with {points} points: a change is drawn in {tab.evaluate(REDRAW):.0f} ms (median of 20)")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "results" / "study")
