"""The README's pictures, each for light and for dark pages, from recorded runs.

    python docs/images/readme.py

writes, in this folder, `method-light.svg` and `method-dark.svg` (one round of FedHV), `pull-*.svg` (weights over the
rounds of the demo, animated) and `bytes-*.svg` (worst task against rounds and against bytes sent).
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from drawing import PAPERS, Paper, low, svg, text

from fedhv.report import read_study
from fedhv.report.aggregate import cost_curve, metric_curve
from fedhv.report.palette import METHOD_STYLES, TASK_COLOURS

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "results"
DEMO = RESULTS / "demo"
STUDY, SETTING = RESULTS / "study" / "mnist-fmnist", "MNIST–FMNIST"
SECONDS, HOLD = 7.0, 2.5
"""Of the animation: its rounds, and the pause on the last one."""


# --- one round of the method


def method(paper: Paper) -> str:
    """Server and clients, what goes between them, and what the server computes."""
    ink, quiet, accent = paper.ink, paper.quiet, METHOD_STYLES["fedhv"].colour

    def box(x: int, y: int, w: int, h: int, stroke: str = quiet) -> str:
        return f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="8" fill="{paper.box}" stroke="{stroke}"/>'

    def arrow(x1: int, x2: int, y: int) -> str:
        return f'<path d="M{x1} {y}H{x2}" stroke="{quiet}" stroke-width="1.8" marker-end="url(#tip)"/>'

    middle = {"text_anchor": "middle"}
    parts = [
        f'<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto"><path fill="{quiet}" d="M0 0 8 4 0 8z"/></marker></defs>',
        box(16, 40, 236, 236, accent),
        text(134, 66, "Server", ink, font_weight=700, font_size=15, **middle),
        text(134, 98, "1  averages updates", ink, **middle),
        text(134, 118, f"θ ← θ + η{low('g')} · mean Δ", quiet, **middle),
        text(134, 150, "2  averages reports", ink, **middle),
        text(134, 170, "f̂ᵢ = mean of fᵢ", quiet, **middle),
        text(134, 202, "3  weights the next round", ink, **middle),
        text(134, 230, "wᵢ ∝ 1 / (rᵢ − f̂ᵢ)", accent, font_size=18, font_weight=700, **middle),
        text(134, 256, "the task near its reference r counts most", quiet, font_size=11, **middle),
        arrow(256, 496, 104),
        text(376, 92, "model θ and m weights w", ink, **middle),
        arrow(496, 258, 216),
        text(376, 204, "update Δ and m losses f", ink, **middle),
        text(376, 240, "2m numbers more than FedAvg", accent, font_weight=600, **middle),
    ]
    parts += [box(500 + 12 * k, 40 + 12 * k, 236, 212, quiet) for k in (2, 1, 0)]
    parts += [
        text(618, 66, "Client", ink, font_weight=700, font_size=15, **middle),
        text(618, 98, "a  reports its loss of every task", ink, **middle),
        text(618, 118, f"f₁(θ), …, f{low('m')}(θ)", quiet, **middle),
        text(618, 150, "b  K steps on the weighted loss", ink, **middle),
        text(618, 170, f"w₁ f₁ + … + w{low('m')} f{low('m')}", quiet, **middle),
        text(618, 202, "c  sends what changed", ink, **middle),
        text(618, 222, f"Δ = θ{low('K')} − θ", quiet, **middle),
        text(
            376, 306, "Calibration fixes the reference r once, from a few rounds with equal weights.", quiet, **middle
        ),
    ]
    return svg(776, 324, paper, "One round of FedHV: server and clients", *parts)


# --- weights that pull a task up


def history(name: str) -> list[dict]:
    """A run's rounds."""
    return [json.loads(line) for line in (DEMO / f"{name}-seed0" / "history.jsonl").read_text().splitlines()]


def accuracies(records: list[dict], task: int) -> list[tuple[int, float]]:
    """(round, accuracy) of every evaluation."""
    seen = [record for record in records if "evaluation" in record]
    return [(record["round"], record["evaluation"]["tasks"][task]["accuracy"]) for record in seen]


def animated(values: list[str], attribute: str) -> str:
    """The last value for the pause, then a value for every round: readers and printers see the whole picture first."""
    n, share = len(values), SECONDS / (SECONDS + HOLD)
    times = ["0", *(f"{1 - share + share * max(i, 0) / (n - 1):.4f}" for i in range(-1, n))]
    return (
        f'<animate attributeName="{attribute}" dur="{SECONDS + HOLD}s" repeatCount="indefinite" '
        f'values="{";".join([values[-1], values[-1], *values])}" keyTimes="{";".join(times)}"/>'
    )


def pull(paper: Paper) -> str:
    """Accuracies of both tasks as they grow, and the weights of every round as bars."""
    ours, uniform = history("fedhv"), history("uniform")
    rounds = len(ours)
    left, right, top, bottom = 62, 500, 58, 300
    names = [task["name"] for task in next(r for r in ours if "evaluation" in r)["evaluation"]["tasks"]]
    x = lambda t: left + (right - left) * t / rounds  # noqa: E731
    y = lambda a: bottom - (bottom - top) * a / 100  # noqa: E731
    weights = np.array([record["weights"] for record in ours])
    parts = []
    for value in (0, 25, 50, 75, 100):
        parts.append(f'<path d="M{left} {y(value)}H{right}" stroke="{paper.grid}"/>')
        parts.append(text(left - 8, y(value) + 4, f"{value}", paper.quiet, text_anchor="end"))
    marks = range(0, rounds + 1, 10)
    parts += [text(x(t), bottom + 18, str(t), paper.quiet, text_anchor="middle") for t in marks]
    parts += [
        text((left + right) / 2, bottom + 38, "round", paper.quiet, text_anchor="middle"),
        text(left, 24, "Test accuracy (%)", paper.ink, font_weight=700, font_size=15),
        text(left, 44, "one seed of the demo; solid: FedHV, dotted: uniform weights", paper.quiet),
        text(548, 24, "FedHV's task weights", paper.ink, font_weight=700, font_size=15),
        text(548, 44, "w ∝ 1/slack, every round", paper.quiet),
    ]
    reveal = animated([f"{x(t) - left + 1:.1f}" for t in range(1, rounds + 1)], "width")
    parts.append(
        f'<clipPath id="shown"><rect x="{left}" y="0" height="400" width="{right - left + 1}">{reveal}</rect>'
        "</clipPath>"
    )
    drawn = []
    for i in range(2):
        for records, dash, width in ((uniform, "2 4", 2), (ours, "", 3)):
            points = " ".join(f"{x(t):.1f},{y(a):.1f}" for t, a in accuracies(records, i))
            drawn.append(
                f'<polyline points="{points}" fill="none" stroke="{TASK_COLOURS[i]}" stroke-width="{width}" '
                f'stroke-dasharray="{dash}"/>'
            )
    parts.append(f'<g clip-path="url(#shown)">{"".join(drawn)}</g>')
    cursor = animated([f"{x(t):.1f}" for t in range(1, rounds + 1)], "x")
    parts.append(f'<rect x="{right}" y="{top}" width="1" height="{bottom - top}" fill="{paper.quiet}">{cursor}</rect>')
    last = [accuracies(ours, i)[-1][1] for i in range(2)]
    others = [accuracies(uniform, i)[-1][1] for i in range(2)]
    for i, name in enumerate(names):
        at = 588 + 92 * i
        heights = [240 * w for w in weights[:, i]]
        top_of = animated([f"{bottom - h:.1f}" for h in heights], "y")
        tall = animated([f"{h:.1f}" for h in heights], "height")
        parts.append(
            f'<rect x="{at - 26}" y="{bottom - heights[-1]:.1f}" width="52" height="{heights[-1]:.1f}" rx="4" '
            f'fill="{TASK_COLOURS[i]}">{top_of}{tall}</rect>'
        )
        parts.append(text(at, bottom + 18, name, paper.ink, text_anchor="middle", font_weight=600))
        parts.append(text(at, bottom + 38, f"{last[i]:.0f} % ({others[i]:.0f} %)", paper.quiet, text_anchor="middle"))
    half = bottom - 120
    parts.append(f'<path d="M556 {half}H706" stroke="{paper.quiet}" stroke-dasharray="4 4"/>')
    parts.append(text(712, half + 4, "equal", paper.quiet, font_size=11))
    title = (
        f"{rounds} rounds of the demo: FedHV's weights move to the task that lags; it ends at {last[1]:.0f} % "
        f"(uniform weights {others[1]:.0f} %), the other at {last[0]:.0f} % ({others[0]:.0f} %)"
    )
    return svg(756, 352, paper, title, *parts)


# --- accuracy against rounds and against bytes


def costs(paper: Paper) -> str:
    """The worst task of four methods, mean over seeds, against rounds and against gigabytes."""
    (setting,) = read_study([STUDY]).settings
    groups = [group for group in setting.groups if not group.variant]
    parts = [
        text(62, 24, f"Worst-task accuracy (%), {SETTING}, mean of 3 seeds", paper.ink, font_weight=700, font_size=15)
    ]
    panels = (
        (62, "round", 1.0, lambda group: metric_curve(group, "worst_accuracy")),
        (438, "GB sent, calibration included", 1e9, lambda group: cost_curve(group, "worst_accuracy", "bytes")),
    )
    top, bottom, width = 42, 290, 308

    def height(value: float) -> float:
        return bottom - (bottom - top) * (value - 40) / 41

    for left, title, unit, curve_of in panels:
        curves = [(group, curve_of(group)) for group in groups]
        most = max(curve.x[-1] for _, curve in curves) / unit
        for value in (40, 50, 60, 70, 80):
            at = height(value)
            parts.append(f'<path d="M{left} {at:.1f}H{left + width}" stroke="{paper.grid}"/>')
            parts.append(text(left - 8, at + 4, str(value), paper.quiet, text_anchor="end"))
        step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200) if most / s <= 6)
        parts += [
            text(left + width * value / most, bottom + 18, f"{value:g}", paper.quiet, text_anchor="middle")
            for value in np.arange(0, most + 1e-9, step)
        ]
        parts.append(text(left + width / 2, bottom + 38, title, paper.quiet, text_anchor="middle"))
        for group, curve in curves:
            style = METHOD_STYLES[group.method]
            points = " ".join(
                f"{left + width * a / unit / most:.1f},{height(b):.1f}"
                for a, b in zip(curve.x, curve.mean, strict=True)
                if b >= 40
            )
            dash = " ".join(f"{length:g}" for length in style.dash)
            parts.append(
                f'<polyline points="{points}" fill="none" stroke="{style.colour}" stroke-width="2.2" '
                f'stroke-dasharray="{dash}"/>'
            )
    for i, group in enumerate(groups):
        style, at = METHOD_STYLES[group.method], 150 + 130 * i
        dash = " ".join(f"{length:g}" for length in style.dash)
        parts.append(
            f'<path d="M{at} 348h30" stroke="{style.colour}" stroke-width="2.5" stroke-dasharray="{dash}"/>'
            + text(at + 38, 352, group.label, paper.ink)
        )
    return svg(760, 366, paper, f"Worst-task accuracy on {SETTING} against rounds and against bytes sent", *parts)


def main() -> None:
    """Write all of them."""
    for paper in PAPERS:
        for name, draw in (("method", method), ("pull", pull), ("bytes", costs)):
            (HERE / f"{name}-{paper.name}.svg").write_text(draw(paper), encoding="utf-8")


if __name__ == "__main__":
    main()
