"""Make the figures of the documentation anew, from the recorded runs in `results/`.

    python docs/images/make.py

The curves, trade-offs, weights, slacks, costs and ablations are those of CIFAR10–MNIST-B, the radar is CelebA5-B's, and
labels and examples are the embedded digits'. Needs matplotlib and Pillow. `page.py` makes the pictures of the page,
`readme.py` those of the README, `effect.py` the tutorial's figure, `engines.py` and `reference.py` those of the engines
and the moving reference, `architecture.py` that of the rooms.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from PIL import Image

from fedhv.report import read_study
from fedhv.report.figures.writing import write_figures

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "results"
ABLATION = "ablation-fedhv-participants"
TWO_TASKS = ("curves", "per-task", "plane", "weights", "slacks", "costs", "ablations", ABLATION)
FIGURES = {
    "study/cifar10-mnist-b*": TWO_TASKS,
    "study/celeba5-b": ("radar",),
    "demo": ("labels", "examples"),
}
"""Folders of runs, and the figures that are taken from their report."""


def main() -> None:
    """All figures, compressed."""
    for folders, names in FIGURES.items():
        with tempfile.TemporaryDirectory() as folder:
            write_figures(read_study(sorted(RESULTS.glob(folders))), Path(folder))
            for name in names:
                shown = "ablation-curves" if name == ABLATION else name
                shutil.copy(Path(folder, f"{name}.png"), HERE / f"figure-{shown}.png")
    for path in sorted(HERE.glob("figure-*.png")):
        Image.open(path).convert("RGB").save(path, optimize=True)
        print(f"{path.name}: {path.stat().st_size // 1024} KB")


if __name__ == "__main__":
    main()
