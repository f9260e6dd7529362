"""Make the pictures of the documentation anew, from reports of three studies.

    fedhv compare digits && fedhv report runs/digits
    docs/images/ablations.sh && fedhv report runs/ablations
    (cd docs/images && fedhv compare five-questions.toml --out ../../runs/five-questions)
    fedhv report runs/five-questions
    python docs/images/make.py runs

Needs Chromium, playwright and Pillow.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
FIGURES = {
    "digits": ("curves", "per-task", "plane", "weights", "slacks", "costs", "labels", "examples"),
    "five-questions": ("radar",),
    "ablations": ("ablations", "ablation-fedhv-participants"),
}
SCREENS = {
    "light": {"viewport": {"width": 1180, "height": 1660}},
    "dark": {"viewport": {"width": 1180, "height": 1660}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 1500}, "device_scale_factor": 1.5, "is_mobile": True},
}


def main(runs: Path) -> None:
    """All pictures, compressed."""
    for study, names in FIGURES.items():
        for name in names:
            shown = name if name != "ablation-fedhv-participants" else "ablation-curves"
            shutil.copy(runs / study / "report" / "figures" / f"{name}.png", HERE / f"figure-{shown}.png")
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        for name, options in SCREENS.items():
            page = browser.new_context(**options).new_page()
            page.goto((runs / "digits" / "report" / "index.html").resolve().as_uri())
            if name == "dark":
                page.select_option("#metric", "worst_accuracy")
                page.select_option("#against", "bytes")
            box = page.locator("#curve-chart .u-over").bounding_box()
            if name != "phone" and box:
                page.mouse.move(box["x"] + 0.55 * box["width"], box["y"] + 0.5 * box["height"])
            page.screenshot(path=HERE / f"page-{name}.png")
        browser.close()
    for path in sorted(HERE.glob("*.png")):
        Image.open(path).convert("RGB").save(path, optimize=True)
        print(f"{path.name}: {path.stat().st_size // 1024} KB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
