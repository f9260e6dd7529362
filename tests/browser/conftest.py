"""A headless Chromium from the system; where there is none the tests say so and are skipped."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE = 300_000
"""Milliseconds until a wait fails: loading a page may take minutes on a busy machine."""
COLOURED_PIXELS = """(id) => {
  const canvas = document.querySelector(`#${id} canvas`);
  if (!canvas) return 0;
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let i = 0; i < data.length; i += 4) {
    const [r, g, b, alpha] = data.slice(i, i + 4);
    if (alpha > 20 && Math.max(r, g, b) - Math.min(r, g, b) > 40) count += 1;
  }
  return count;
}"""


@dataclass
class Tab:
    """A page in the browser, and what it complained about."""

    page: object
    complaints: list[str] = field(default_factory=list)

    def open(self, address: str) -> None:
        """Load a page; one of ours is ready when its data are unpacked."""
        self.page.goto("about:blank")
        self.page.goto(address)
        if self.page.locator("script#data").count():
            self.page.locator("body[data-ready]").wait_for(state="attached")

    def drawn(self, chart: str) -> int:
        """How many pixels of a chart are neither transparent nor grey: what the curves and bands cover."""
        return self.page.evaluate(COLOURED_PIXELS, chart)

    def readout(self, chart: str) -> dict[str, str]:
        """The table below a chart."""
        rows = self.page.locator(f"#{chart} .readout tbody tr").all()
        return {row.locator("td").nth(0).inner_text().strip(): row.locator("td").nth(1).inner_text() for row in rows}


@pytest.fixture(scope="session")
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install playwright)")
    # Every launch gets a new, empty profile of its own.
    with api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=list(FLAGS))
        yield running
        running.close()


def new_tab(browser, **options: object):
    """A tab with nothing in it; its context, to be closed, and the tab."""
    context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    found = Tab(page)
    page.on("console", lambda message: found.complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: found.complaints.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (found.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    return context, found


@pytest.fixture(scope="module")
def one_tab(browser):
    """A tab that the tests of a module share; each of them loads its address anew."""
    context, found = new_tab(browser, reduced_motion="reduce")
    yield found
    context.close()


@pytest.fixture
def tab(browser):
    """Opens an address; at the end nothing may have gone to the console."""
    opened = []

    def open_tab(address: str, **options: object) -> Tab:
        context, found = new_tab(browser, **options)
        found.open(address)
        opened.append((context, found))
        return found

    yield open_tab
    complaints = [complaint for _, found in opened for complaint in found.complaints]
    for context, _ in opened:
        context.close()
    assert complaints == []
