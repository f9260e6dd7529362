"""The picture of a frozen and a moving reference, from the recorded runs on MultiMNIST, for light and for dark pages.

    python docs/images/reference.py

writes `reference-light.svg` and `reference-dark.svg`: reported losses with the reference above them, and the weights
that follow from the slacks, means of five seeds in `results/rules/study.tar.xz`.
"""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from drawing import PAPERS, Paper, svg, text

from fedhv.methods.rules.moving import MovingFedHV
from fedhv.report.palette import TASK_COLOURS
from fedhv.support import toml

HERE = Path(__file__).parent
STUDY = HERE.parents[1] / "results" / "rules" / "study.tar.xz"
FOLDER, SEEDS = "study/multimnist/rules", range(5)
TASKS = ("left digit", "right digit")
LEFTS, WIDE = (62, 430), 300
LOSSES, WEIGHTS = (66, 250), (296, 410)
"""Top and bottom of the panels."""
HIGHEST, LEAST, MOST = 3.6, 0.35, 0.65


@dataclass(frozen=True)
class Means:
    """Over seeds, one row per round: reports, the reference that gave the next weights, and the weights."""

    report: np.ndarray
    reference: np.ndarray
    weights: np.ndarray


def read() -> tuple[Means, Means]:
    """FedHV's runs, and those of the moving reference."""
    with tarfile.open(STUDY) as archive:

        def content(path: str) -> str:
            found = archive.extractfile(f"{FOLDER}/{path}")
            assert found is not None
            return found.read().decode("utf-8")

        def rounds(method: str, key: str) -> np.ndarray:
            runs = [
                [json.loads(line)[key] for line in content(f"{method}-seed{seed}/history.jsonl").splitlines()]
                for seed in SEEDS
            ]
            return np.array(runs)

        frozen = np.array([toml.read_text(content(f"fedhv-seed{s}/reference.toml"))["values"] for s in SEEDS])
        reports = rounds("fedhv", "report")
        moving = rounds("fedhv-moving", "report")
        fixed = np.broadcast_to(frozen[:, None], reports.shape)
        # The history of this rule has no slacks: its reference is c times the larger report of the round.
        follows = np.broadcast_to(MovingFedHV.factor * moving.max(axis=2, keepdims=True), moving.shape)
        return (
            Means(reports.mean(0), fixed.mean(0), rounds("fedhv", "weights").mean(0)),
            Means(moving.mean(0), follows.mean(0), rounds("fedhv-moving", "weights").mean(0)),
        )


def line(xs: np.ndarray, ys: np.ndarray, colour: str, dash: str = "") -> str:
    """A curve."""
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.2" stroke-dasharray="{dash}"/>'


def panel(left: int, means: Means, paper: Paper) -> list[str]:
    """Losses below their reference, and the weights of every round."""
    n = len(means.report)
    xs = left + WIDE * np.arange(1, n + 1) / n

    def loss(values: np.ndarray | float) -> np.ndarray:
        top, bottom = LOSSES
        return bottom - (bottom - top) * np.asarray(values) / HIGHEST

    def weight(values: np.ndarray) -> np.ndarray:
        top, bottom = WEIGHTS
        return bottom - (bottom - top) * (np.asarray(values) - LEAST) / (MOST - LEAST)

    parts = []
    for place, values in ((loss, (0, 1, 2, 3)), (weight, (0.4, 0.5, 0.6))):
        for value in values:
            at = float(place(np.array(value)))
            parts.append(f'<path d="M{left} {at:.1f}H{left + WIDE}" stroke="{paper.grid}"/>')
            parts.append(text(left - 8, at + 4, f"{value:g}", paper.quiet, text_anchor="end"))
    reference = loss(means.reference[:, 1])
    lower = loss(means.report[:, 1])
    area = " ".join(
        f"{x:.1f},{y:.1f}" for x, y in [*zip(xs, reference, strict=True), *zip(xs[::-1], lower[::-1], strict=True)]
    )
    parts.append(f'<polygon points="{area}" fill="{TASK_COLOURS[1]}" fill-opacity="0.14"/>')
    parts.append(line(xs, reference, paper.ink, "6 4"))
    for i, dash in enumerate(("", "7 4")):
        parts.append(line(xs, loss(means.report[:, i]), TASK_COLOURS[i], dash))
        parts.append(line(xs, weight(means.weights[:, i]), TASK_COLOURS[i], dash))
    early = n // 14
    within = float(reference[early] + lower[early]) / 2
    words = f"slack of the {TASKS[1]}"
    parts.append(f'<path d="M{xs[early]:.1f} {within:.1f}L{left + 86} {loss(1.9):.1f}" stroke="{paper.ink}"/>')
    parts.append(text(left + 90, float(loss(1.9)) + 4, words, paper.ink, font_size=12))
    parts.append(text(left + WIDE, float(reference[-1]) - 7, "reference", paper.ink, text_anchor="end", font_size=12))
    marks = range(0, n + 1, 50)
    parts += [text(left + WIDE * t / n, WEIGHTS[1] + 18, str(t), paper.quiet, text_anchor="middle") for t in marks]
    parts.append(text(left + WIDE / 2, WEIGHTS[1] + 36, "round", paper.quiet, text_anchor="middle"))
    return parts


def draw(paper: Paper, frozen: Means, moving: Means) -> str:
    """Both references side by side."""
    titles = (
        ("Frozen (fedhv)", "reference r, fixed by calibration"),
        ("Moving (fedhv-moving)", f"r = {MovingFedHV.factor:g} × the larger loss"),
    )
    parts = []
    for left, means, (title, words) in zip(LEFTS, (frozen, moving), titles, strict=True):
        parts += [
            text(left, 24, title, paper.ink, font_weight=700, font_size=15),
            text(left, 44, f"{words}; losses below it", paper.quiet),
            text(left, WEIGHTS[0] - 12, "weights, proportional to 1 / slack", paper.quiet),
            *panel(left, means, paper),
        ]
    for i, (name, dash) in enumerate(zip(TASKS, ("", "7 4"), strict=True)):
        at = 190 + 210 * i
        parts.append(
            f'<path d="M{at} 472h30" stroke="{TASK_COLOURS[i]}" stroke-width="2.5" stroke-dasharray="{dash}"/>'
            + text(at + 38, 476, name, paper.ink, font_size=12)
        )
    ends = [f"{means.weights[-1, 0]:.2f} and {means.weights[-1, 1]:.2f}" for means in (frozen, moving)]
    title = (
        "MultiMNIST, means of five seeds: with a frozen reference the slacks grow and the weights return to "
        f"{ends[0]}; with a moving one the slacks follow the losses and the weights end at {ends[1]}"
    )
    return svg(756, 490, paper, title, *parts)


def main() -> None:
    """Write both."""
    frozen, moving = read()
    for paper in PAPERS:
        (HERE / f"reference-{paper.name}.svg").write_text(draw(paper, frozen, moving), encoding="utf-8")


if __name__ == "__main__":
    main()
