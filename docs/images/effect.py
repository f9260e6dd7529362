"""The tutorial's figure: what balancing does, from the recorded runs of `make demo`, for light and for dark pages.

python docs/images/effect.py     writes docs/images/effect-light.svg and effect-dark.svg
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from drawing import PAPERS, Paper

from fedhv.report.palette import METHOD_STYLES

HERE = Path(__file__).parent
DEMO = HERE.parents[1] / "results" / "demo"
TITLES = {"fedhv": "FedHV", "fedcmoo": "FedCMOO", "fsmgda": "FSMGDA", "uniform": "Uniform"}
TASKS = ("clear", "faint")
GAP = 7
"""Percentage points between two labels."""


def history(method: str) -> list[dict]:
    """A run's rounds."""
    return [json.loads(line) for line in (DEMO / f"{method}-seed0" / "history.jsonl").read_text().splitlines()]


def accuracies(records: list[dict], task: int) -> tuple[list[int], list[float]]:
    """The rounds that were evaluated, and a task's accuracy in each."""
    seen = [r for r in records if "evaluation" in r]
    return [r["round"] for r in seen], [r["evaluation"]["tasks"][task]["accuracy"] for r in seen]


def main() -> None:
    """Draw both."""
    for paper in PAPERS:
        draw(paper)


def draw(paper: Paper) -> None:
    """The figure in the colours of a page."""
    plt.rcParams.update(
        {
            "svg.hashsalt": "fedhv",
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.25,
            "grid.color": paper.quiet,
            "axes.edgecolor": paper.quiet,
            "axes.labelcolor": paper.ink,
            "text.color": paper.ink,
            "xtick.color": paper.quiet,
            "ytick.color": paper.quiet,
            "axes.facecolor": paper.ground,
            "savefig.facecolor": paper.ground,
        }
    )
    figure, (uniform, fedhv, worst) = plt.subplots(1, 3, figsize=(10.2, 3.1), sharey=True, layout="constrained")
    for axes, method in ((uniform, "uniform"), (fedhv, "fedhv")):
        for task, line in ((0, "-"), (1, "--")):
            rounds, values = accuracies(history(method), task)
            axes.plot(rounds, values, line, color=METHOD_STYLES[method].colour, linewidth=2)
            axes.annotate(
                f"{TASKS[task]} {values[-1]:.0f} %", (rounds[-1], values[-1]), xytext=(4, 0),
                textcoords="offset points", va="center", color=METHOD_STYLES[method].colour,
            )  # fmt: skip
        axes.set_title(f"{TITLES[method]}: both tasks", loc="left", fontweight="bold", fontsize=10)
    ends: dict[str, float] = {}
    for method in TITLES:
        records = history(method)
        rounds = accuracies(records, 0)[0]
        values = [min(pair) for pair in zip(accuracies(records, 0)[1], accuracies(records, 1)[1], strict=True)]
        worst.plot(rounds, values, color=METHOD_STYLES[method].colour, linewidth=2)
        ends[method] = values[-1]
    place = -GAP
    for method, value in sorted(ends.items(), key=lambda end: end[1]):
        place = max(value, place + GAP)  # labels of lines that end together would lie upon each other
        worst.annotate(
            f"{TITLES[method]} {value:.0f} %", (rounds[-1], place), xytext=(4, 0),
            textcoords="offset points", va="center", color=METHOD_STYLES[method].colour,
        )  # fmt: skip
    worst.set_title("The worse task, by method", loc="left", fontweight="bold", fontsize=10)
    uniform.set_ylabel("test accuracy (%)")
    for axes in (uniform, fedhv, worst):
        axes.set_xlabel("round")
        axes.set_xlim(0, 98)
        axes.set_ylim(0, 100)
        axes.set_xticks([0, 20, 40, 60])
    figure.savefig(HERE / f"effect-{paper.name}.svg", metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
