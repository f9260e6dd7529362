"""The common parts of all figures: fonts, sizes, axes, curves with bands, legends."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedhv.report.aggregate import Curve
from fedhv.report.palette import Style
from fedhv.support.errors import InputError
from fedhv.support.files import write_atomic
from fedhv.support.wording import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 6.75
"""Inches: the text width of a page, or two columns."""
MISSING = "Figures need matplotlib: pip install 'fedhv[figures]', or leave them out with --no-figures."
DOTS_PER_INCH = 200
LEGEND_LINE, LEGEND_LINES = 0.17, 2
"""Inches of a line of a legend, and how many of them the height of a figure includes."""
MARKED_UP_TO = 12
"""The largest number of points that a curve marks."""
RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.handlelength": 2.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "lines.linewidth": 1.5,
    "lines.markersize": 3.5,
    "lines.dash_capstyle": "round",
    "lines.scale_dashes": False,
    "figure.dpi": 100,
    "savefig.dpi": DOTS_PER_INCH,
    "pdf.fonttype": 42,  # TrueType: text stays text, which journals require
    "svg.fonttype": "none",
    "axes.formatter.useoffset": False,
    "axes.formatter.limits": (-4, 5),
}


def image(figure: Figure, kind: str) -> bytes:
    """A figure as "png" or "pdf"; without dates and version numbers, so that the same data gives the same bytes."""
    metadata: dict[str, Any] = {"Software": None} if kind == "png" else {"CreationDate": None}
    content = io.BytesIO()
    figure.savefig(content, format=kind, metadata=metadata)
    return content.getvalue()


def write_figure(stem: Path, figure: Figure) -> list[Path]:
    """The figure as `stem`.png and `stem`.pdf."""
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "pdf")]
    for path in paths:
        write_atomic(path, image(figure, path.suffix[1:]))
        figure.set_layout_engine("none")  # the layout is computed once, because it is slow
    return paths


@contextmanager
def drawing() -> Iterator[None]:
    """Draw in the common style. Raises an error if matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        raise InputError(MISSING) from None
    with matplotlib.rc_context(RC):
        yield


def panels(rows: int, columns: int, height: float, width: float = WIDTH, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure of equal panels, row by row; `height` is that of one row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, list(axes.flat)


def draw(axes: Axes, curve: Curve, style: Style, label: str, named: bool = False, **options: Any) -> None:
    """A mean with its band; a curve with few points marks them. A `named` label may contain mathematics."""
    if not len(curve):
        return
    low, high = curve.band
    axes.plot(
        curve.x,
        curve.mean,
        color=style.colour,
        linestyle=linestyle(style),
        marker=style.marker if len(curve) <= MARKED_UP_TO else None,
        label=label if named else plain(label),
        **options,
    )
    if np.isfinite(low).any():
        axes.fill_between(curve.x, low, high, color=style.colour, alpha=0.16, linewidth=0)


def linestyle(style: Style) -> Any:
    """The dashes in matplotlib's notation."""
    return (0, style.dash) if style.dash else "-"


def legend_above(figure: Figure, axes: Axes) -> None:
    """One legend above all panels, wrapped to the width of the figure."""
    handles, labels = axes.get_legend_handles_labels()
    if not handles:
        return
    words = [re.sub(r"\\[a-z]+|[${}_]", "", label) for label in labels]
    widest = 0.5 + 0.065 * max(map(len, words))  # inches: the sample of the line, then letters
    fit = max(1, int(figure.get_figwidth() / widest))
    lines = -(-len(labels) // fit)
    columns = -(-len(labels) // lines)
    # A legend of many lines makes the figure higher, so that it does not take the room of the panels.
    figure.set_figheight(figure.get_figheight() + LEGEND_LINE * max(0, lines - LEGEND_LINES))
    figure.legend(handles, labels, loc="outside upper center", ncols=columns, columnspacing=1.6)


def letters(axes: Sequence[Axes]) -> None:
    """(a), (b), … before the titles."""
    if len(axes) < 2:
        return
    for i, each in enumerate(axes[:26]):
        each.set_title(f"({chr(97 + i)}) {each.get_title()}".rstrip())


def from_zero(axes: Axes) -> None:
    """Start an axis of counts at its first value."""
    axes.margins(x=0.04)
    axes.set_xlim(left=0)


def only(figure: Figure, axes: Sequence[Axes], used: int) -> list[Axes]:
    """Remove empty panels."""
    for each in axes[used:]:
        figure.delaxes(each)
    return list(axes[:used])
