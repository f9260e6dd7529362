"""Make the figures of the documentation anew, from reports of three studies.

    fedhv compare digits && fedhv report runs/digits
    docs/images/ablations.sh && fedhv report runs/ablations
    (cd docs/images && fedhv compare five-questions.toml --out ../../runs/five-questions)
    fedhv report runs/five-questions
    python docs/images/make.py runs

Needs Pillow. `page.py` makes the pictures of the page, `readme.py` those of the README.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
FIGURES = {
    "digits": ("curves", "per-task", "plane", "weights", "slacks", "costs", "labels", "examples"),
    "five-questions": ("radar",),
    "ablations": ("ablations", "ablation-fedhv-participants"),
}


def main(runs: Path) -> None:
    """All pictures, compressed."""
    for study, names in FIGURES.items():
        for name in names:
            shown = name if name != "ablation-fedhv-participants" else "ablation-curves"
            shutil.copy(runs / study / "report" / "figures" / f"{name}.png", HERE / f"figure-{shown}.png")
    for path in sorted(HERE.glob("figure-*.png")):
        Image.open(path).convert("RGB").save(path, optimize=True)
        print(f"{path.name}: {path.stat().st_size // 1024} KB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
