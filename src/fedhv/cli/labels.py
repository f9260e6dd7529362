"""The lines of `fedhv show` about labels: their skew over clients, and the available fraction."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files

from fedhv.benchmarks import COMPLETE
from fedhv.runs.config import Setting, as_shipped
from fedhv.support import toml
from fedhv.support.errors import FedHVError

Skews = Iterable[tuple[str, float, float]]
"""Task, skew, and the skew that a random draw would have."""


def label_lines(setting: Setting, data: str | None) -> list[str]:
    """The label skew of every task, and the fraction of available training labels if some are missing.

    The skew of a shipped setting is recorded. Otherwise the benchmark is loaded, as it is where labels may be missing.
    """
    recorded = _recorded(setting)
    if recorded and setting.federation.missing == 0 and setting.benchmark in COMPLETE:
        return [_skew_line(recorded)]
    from fedhv.problem.hiding import shown
    from fedhv.problem.skew import label_skew
    from fedhv.runs.resolve import resolve

    try:
        problem = resolve(setting, data=data)[1]
    except FedHVError as error:
        return [f"Available labels: unknown, because the examples cannot be read. {error}"]
    names = [task.name for task in problem.tasks]
    skews = label_skew(problem)
    lines = [_skew_line((n, each.found, each.random) for n, each in zip(names, skews, strict=True))] if skews else []
    shares = shown(problem)
    if min(shares) < 1:
        each = (f"{name} {100 * share:.1f} %" for name, share in zip(names, shares, strict=True))
        lines.append(f"Available labels: {', '.join(each)}")
    return lines


def _recorded(setting: Setting) -> list[tuple[str, float, float]]:
    """The recorded skew of a shipped setting whose clients are unchanged; empty otherwise."""
    shipped = as_shipped(setting.name)
    if shipped is None or (shipped.benchmark, shipped.federation) != (setting.benchmark, setting.federation):
        return []
    tables = toml.read_text(files("fedhv.benchmarks").joinpath("label-skew.toml").read_text("utf-8"))
    return [(task, *numbers) for task, numbers in tables.get(setting.name, {}).items()]


def _skew_line(skews: Skews) -> str:
    each = (f"{task} {found:.3f} ({random:.3f})" for task, found, random in skews)
    return f"Label skew over clients (in a random draw): {', '.join(each)}"
