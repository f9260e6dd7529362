"""The figures of the laboratory's experiments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedhv.paper.laboratory.rate import RateCurve
from fedhv.paper.laboratory.safety import Safety
from fedhv.paper.laboratory.terms import Measured
from fedhv.report.figures.drawing import letters, panels
from fedhv.report.palette import DASHES, MARKERS, OKABE_ITO, sequence

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GRADIENT = r"$\frac{1}{T}\sum_t\,\mathbb{E}\,\|\nabla\Phi(\theta^t)\|^2$"
TERMS = {
    "initial_gap": r"$A_1\Delta_\Phi/(\eta_{\mathrm{eff}}T)$",
    "gradient_noise": r"$A_2\,\eta_{\mathrm{eff}}\Sigma^2$",
    "participation": r"$A_3\,\eta_{\mathrm{eff}}\mathcal{H}_N$",
    "local_drift": r"$A_4\,\eta_\ell^2(K{-}1)(2K{-}1)$",
    "report_error": r"$A_5\,\Xi$",
    "staleness": r"$A_6\,\eta_{\mathrm{eff}}^2\mathcal{V}$",
    "initial_weights": r"$A_7/T$",
}
COLOURS = [OKABE_ITO[name] for name in ("blue", "orange", "green", "purple", "vermillion", "sky", "grey")]


def rate_figure(curves: Sequence[RateCurve]) -> Figure:
    """The average squared gradient over horizons: exact reports on the left, noisy ones on the right."""
    figure, (left, right) = panels(1, 2, 3.0)
    exact = [curve for curve in curves if curve.name.startswith("full reports")]
    noisy = [curve for curve in curves if not curve.name.startswith("full reports")]
    names = (r"largest admissible $\eta_0$", r"$\eta_0 = 1/L$, minibatch noise")
    for curve, colour, marker, name in zip(exact, ("blue", "vermillion"), "os", names, strict=True):
        slope = f"{curve.slope[0]:.2f}".replace("-", "−")
        _curve(left, curve, OKABE_ITO[colour], marker, f"{name} (slope {slope})")
        if curve.admissible:
            label = "theorem's bound for it"
            left.plot(
                curve.horizons, [b for b in curve.bounds if b], color=OKABE_ITO[colour], ls=(0, DASHES[1]), label=label
            )
    _guide(left, exact[0])
    left.set_title("exact reports: the rate")
    for curve, colour, marker in zip(noisy, sequence(len(noisy)), MARKERS, strict=False):
        xi = curve.report_error
        _curve(right, curve, colour, marker, r"$\Xi = $" + (f"{xi:.2g}" if xi > 0 else "0"))
    right.set_title("noisy reports: the neighbourhood")
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("horizon $T$ (rounds)")
    left.set_ylabel(GRADIENT)
    left.legend(loc="lower left", fontsize=7)
    right.legend(loc="lower left", fontsize=7, title="measured report error", title_fontsize=7)
    low, high = left.get_ylim()
    left.set_ylim(low / 60, high)
    low, high = right.get_ylim()
    right.set_ylim(low / 20, high)
    letters((left, right))
    return figure


def _curve(axes: Axes, curve: RateCurve, colour: str, marker: str, label: str) -> None:
    mean = np.array([each.mean for each in curve.observed])
    error = np.array([each.error for each in curve.observed])
    axes.plot(curve.horizons, mean, color=colour, marker=marker, label=label)
    axes.fill_between(
        curve.horizons, np.maximum(mean - 2 * error, mean / 10), mean + 2 * error, color=colour, alpha=0.18, lw=0
    )


def _guide(axes: Axes, curve: RateCurve) -> None:
    """A short line of slope −1/2 beside the end of the curve."""
    x = np.array([curve.horizons[3], curve.horizons[0]], dtype=float)
    y = 1.5 * curve.height * np.sqrt(curve.horizons[0] / x)
    axes.plot(x, y, color="#444444", lw=0.9)
    axes.annotate(
        "−1/2", (np.sqrt(x[0] * x[1]), np.sqrt(y[0] * y[1])), xytext=(2, 3), textcoords="offset points", fontsize=7
    )


def terms_figure(found: Sequence[Measured], over_horizons: Sequence[dict[str, Any]]) -> Figure:
    """Every case's terms and total beside what was measured, and how the terms shrink with the horizon."""
    from matplotlib.lines import Line2D

    shown = [m for m in found if m.through == "ensemble" or not _has_ensemble(found, m)]
    figure, (left, right) = panels(1, 2, 0.9 + 0.2 * len(shown), gridspec_kw={"width_ratios": [1.35, 1]})
    rows = np.arange(len(shown))[::-1]
    for y, m in zip(rows, shown, strict=True):
        for (_, value), colour, marker in zip(m.terms.as_dict().items(), COLOURS, MARKERS, strict=False):
            if value > 0:
                left.plot(value, y, marker, color=colour, ms=3.6, alpha=0.9)
        left.plot(m.terms.total, y, "|", color="black", ms=9, mew=1.8)
        left.plot(m.observed.mean, y, "x", color="black", ms=5, mew=1.4)
    left.set_xscale("log")
    usual = shown[0].horizon
    names = [m.case.name + ("" if m.horizon == usual else f" ($T = {m.horizon}$)") for m in shown]
    left.set_yticks(rows, names)
    left.set_ylim(-0.7, len(shown) - 0.3)
    left.grid(axis="y", visible=True)
    left.set_xlabel(GRADIENT)
    left.set_title(f"the bound's terms, $T = {usual}$")
    horizons = [row["horizon"] for row in over_horizons]
    for (name, _), colour, marker in zip(TERMS.items(), COLOURS, MARKERS, strict=False):
        values = np.array([row[name] for row in over_horizons])
        if (values > 0).any():
            right.plot(horizons, values, color=colour, marker=marker, ms=3)
    right.plot(horizons, [row["total"] for row in over_horizons], color="black", lw=1.8)
    right.set_xscale("log", base=2)
    right.set_yscale("log")
    right.set_xlabel("horizon $T$ (rounds)")
    right.set_title("as the horizon grows")
    handles = [
        Line2D([], [], color=colour, marker=marker, ls="", ms=4, label=label)
        for label, colour, marker in zip(TERMS.values(), COLOURS, MARKERS, strict=False)
    ]
    handles += [
        Line2D([], [], color="black", marker="|", ls="", ms=9, mew=1.8, label="bound"),
        Line2D([], [], color="black", marker="x", ls="", ms=5, mew=1.4, label="measured"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=5, columnspacing=1.2, handletextpad=0.4)
    letters((left, right))
    return figure


def _has_ensemble(found: Sequence[Measured], one: Measured) -> bool:
    return any(m.case.name == one.case.name and m.through == "ensemble" for m in found)


def certificate_figure(found: Sequence[Safety], horizons: Sequence[dict[str, Any]]) -> Figure:
    """Slacks of all runs beside the certified margin, and how far certificates reach."""
    figure, axes = panels(1, 3, 2.7)
    certified = max((s for s in found if s.certificate.certified), key=lambda s: s.certificate.horizon)
    refused = next((s for s in found if not s.certificate.certified), None)
    for each, s, title in zip(axes, (certified, refused), ("certified", "not certified"), strict=False):
        if s is None:
            each.set_axis_off()
            continue
        rounds = np.arange(len(s.course))
        each.fill_between(
            rounds, s.course[:, 0], s.course[:, 1], color=OKABE_ITO["sky"], alpha=0.45, lw=0, label="lowest 5 % of runs"
        )
        each.plot(rounds, s.course[:, 2], color=OKABE_ITO["blue"], label="median run")
        each.axhline(
            s.certificate.margin, color=OKABE_ITO["green"], ls=(0, DASHES[1]), label=r"$\rho$ of the certificate"
        )
        each.axhline(0, color="#444444", lw=0.8)
        each.set_xlabel("round")
        each.set_title(title)
        if s is certified:
            each.set_ylim(0, 1.45 * s.course.max())
            each.set_ylabel(r"smallest true slack $\min_i s_i(\theta^t)$")
            each.legend(loc="upper right", fontsize=7)
    by_case: dict[str, list[dict[str, Any]]] = {}
    for row in horizons:
        by_case.setdefault(row["case"], []).append(row)
    for (name, rows), colour, marker in zip(
        by_case.items(), ("blue", "vermillion", "green", "purple"), MARKERS, strict=False
    ):
        reached = [row for row in rows if row["horizon"] > 0]
        name = name.replace(", small steps", "")
        axes[2].plot(
            [row["local_lr"] for row in reached], [row["horizon"] for row in reached],
            color=OKABE_ITO[colour], marker=marker, label=name,
        )  # fmt: skip
    axes[2].set_xscale("log")
    axes[2].set_yscale("log")
    axes[2].set_xlabel(r"local step size $\eta_\ell$")
    axes[2].set_ylabel("largest certified horizon")
    axes[2].set_title("how far they reach")
    axes[2].legend(loc="lower left", fontsize=7)
    letters(axes)
    return figure
