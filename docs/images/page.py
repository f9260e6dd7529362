"""Pictures of the page for the documentation, at 1400 and 390 pixels, light, dark and printed.

    python docs/images/page.py

The page is made from the recorded runs in `results/study`. Needs Chromium, playwright, Pillow and, for the
printed sheets, pypdfium2.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pypdfium2
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from fedhv.report import page, read_study

HERE = Path(__file__).parent
STUDY = HERE.parents[1] / "results" / "study"
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
WIDE, PHONE = {"width": 1400, "height": 1000}, {"width": 390, "height": 1300}
STATE = "#setting=cifar10-mnist-b"
SCREENS = {
    "light": ({"viewport": WIDE}, STATE, ""),
    "dark": ({"viewport": WIDE, "color_scheme": "dark"}, "#setting=celeba5-b", ""),
    "balance": ({"viewport": {"width": 1400, "height": 980}}, STATE, "balance"),
    "curves": ({"viewport": {"width": 1400, "height": 980}}, f"{STATE}&metric=worst_accuracy&against=bytes", "curves"),
    "paper": ({"viewport": {"width": 1400, "height": 980}}, STATE, "paper"),
    "phone": ({"viewport": PHONE, "device_scale_factor": 1.5, "is_mobile": True}, STATE, ""),
    "phone-dark": (
        {"viewport": PHONE, "device_scale_factor": 1.5, "is_mobile": True, "color_scheme": "dark"}, STATE, "balance",
    ),
}  # fmt: skip
"""Name, browser, state of the page, and the section that is scrolled to."""


def main() -> None:
    """All pictures, with 256 colours, so that they stay small."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        made = Path(folder, "index.html")
        made.write_text(page(read_study([STUDY])), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name, (options, state, section) in SCREENS.items():
            tab = browser.new_context(reduced_motion="reduce", **options).new_page()
            _open(tab, made.as_uri() + state)
            if section:
                tab.evaluate("id => document.getElementById(id).scrollIntoView()", section)
            if section in ("balance", "curves") and name != "phone-dark":
                chart = tab.locator(f"#{'slack' if section == 'balance' else 'curve'}-chart .u-over")
                box = chart.bounding_box()
                tab.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.5 * box["height"])
            tab.screenshot(path=HERE / f"page-{name}.png")
        tab = browser.new_context().new_page()
        _open(tab, made.as_uri() + STATE)
        tab.pdf(path=Path(folder, "page.pdf"), format="A4", print_background=True)
        browser.close()
        sheets = pypdfium2.PdfDocument(Path(folder, "page.pdf"))
        _join([sheets[i].render(scale=0.9).to_pil() for i in range(4)], HERE / "page-print.png")
    for path in sorted(HERE.glob("page-*.png")):
        # The colours that are spread furthest: a median cut would merge the few pixels of a thin line with others.
        reduced = Image.open(path).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=1)
        reduced.save(path, optimize=True)
        print(f"{path.name}: {path.stat().st_size // 1024} KB")


def _open(tab: Page, address: str) -> None:
    tab.goto(address)
    tab.wait_for_selector("body[data-ready]", state="attached")


def _join(images: list[Image.Image], target: Path) -> None:
    """Sheets of paper side by side, each with a thin edge."""
    width, height = images[0].size
    wall = Image.new("RGB", (len(images) * (width + 12) + 12, height + 24), "#9aa3ad")
    for i, image in enumerate(images):
        wall.paste(image, (12 + i * (width + 12), 12))
    wall.save(target)


if __name__ == "__main__":
    main()
