"""One colour and one line style per method, in figures and on the page; distinguishable by colour-blind readers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedhv.report.groups import StudyData, method_rank

OKABE_ITO = {
    "vermillion": "#D55E00",
    "blue": "#0072B2",
    "green": "#009E73",
    "purple": "#CC79A7",
    "sky": "#56B4E9",
    "orange": "#E69F00",
    "grey": "#686868",
}
"""Okabe and Ito's palette without yellow, which is too faint on white, and with grey instead of black."""

SOLID, DASHED, DOTTED, DASH_DOT = (), (6, 2.5), (1.5, 2), (7, 2, 1.5, 2)
DASHES: tuple[tuple[float, ...], ...] = (SOLID, DASHED, DASH_DOT, DOTTED, (10, 3), (3, 1.5, 3, 1.5, 1, 1.5))
MARKERS = "osD^vPX*"


@dataclass(frozen=True)
class Style:
    """Colour, dashes and marker of one curve."""

    colour: str
    dash: tuple[float, ...]
    marker: str


METHOD_STYLES = {
    "fedhv": Style(OKABE_ITO["vermillion"], SOLID, "o"),
    "fedcmoo": Style(OKABE_ITO["blue"], DASHED, "s"),
    "fsmgda": Style(OKABE_ITO["green"], DASH_DOT, "^"),
    "uniform": Style(OKABE_ITO["purple"], DOTTED, "D"),
}
"""The paper's methods have the same style in every study."""

_OWN = [OKABE_ITO[name] for name in ("sky", "orange", "grey")]
_PAPERS = [OKABE_ITO[name] for name in ("blue", "green", "purple", "vermillion")]

TASK_COLOURS = ("#4A63D8", "#81B814", "#73510D", "#9AA6F5", "#68B6A9", "#2F655D")
"""Of tasks, so that a task is never taken for a method: indigo, lime, brown, lavender, mint, pine."""


def styles(study: StudyData) -> dict[str, Style]:
    """A style for the label of every group of a study; the paper's methods keep theirs, whatever else there is."""
    groups = [group for setting in study.settings for group in setting.all_groups]
    plain = {group.label: group.method for group in groups if not group.variant}
    found = {label: METHOD_STYLES[method] for label, method in plain.items() if method in METHOD_STYLES}
    rest = sorted({g.label: (method_rank(g.method), len(g.variant)) for g in groups if g.label not in found}.items(),
                  key=lambda item: (item[1], item[0]))  # fmt: skip
    looks = spare_styles()
    return found | {label: looks[i % len(looks)] for i, (label, _) in enumerate(rest)}


def front_styles(methods: Sequence[str]) -> list[Style]:
    """A style for every method of a front; a method that is there twice has its own style once."""
    spare, used, found = iter(spare_styles()), set(), []
    for method in methods:
        own = method in METHOD_STYLES and method not in used
        found.append(METHOD_STYLES[method] if own else next(spare))
        used.add(method)
    return found


def spare_styles() -> list[Style]:
    """Every pair of colour and dash but the reserved ones, those of unreserved colours first; neighbours differ."""
    reserved = {(style.colour, style.dash) for style in METHOD_STYLES.values()}
    pairs = [
        (colour, DASHES[(i + turn) % len(DASHES)])
        for colours in (_OWN, _PAPERS)
        for turn in range(len(DASHES))
        for i, colour in enumerate(colours)
    ]
    free = [pair for pair in pairs if pair not in reserved]
    return [Style(colour, dash, MARKERS[(4 + i) % len(MARKERS)]) for i, (colour, dash) in enumerate(free)]


def task_styles(tasks: Iterable[str]) -> list[Style]:
    """A style for every task, for figures whose curves are tasks."""
    n = len(TASK_COLOURS)
    return [
        Style(TASK_COLOURS[i % n], DASHES[(i + i // n) % len(DASHES)], MARKERS[i % len(MARKERS)])
        for i, _ in enumerate(tasks)
    ]


def sequence(n: int) -> list[str]:
    """n colours from dark to light for the values of one hyper-parameter: viridis, without its faint end."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colormaps["viridis"](0.82 * i / max(n - 1, 1))) for i in range(n)]
