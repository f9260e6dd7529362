"""The lines of `fedhv show` about missing labels."""

from __future__ import annotations

from fedhv.benchmarks import COMPLETE
from fedhv.runs.config import Setting
from fedhv.support.errors import FedHVError


def label_lines(setting: Setting, data: str | None) -> list[str]:
    """The fraction of available training labels of every task; empty if all are available.

    The benchmark is loaded only if labels may be missing.
    """
    if setting.federation.missing == 0 and setting.benchmark in COMPLETE:
        return []
    from fedhv.problem.hiding import shown
    from fedhv.runs.resolve import resolve

    try:
        problem = resolve(setting, data=data)[1]
    except FedHVError as error:
        return [f"Available labels: unknown, because the examples cannot be read. {error}"]
    shares = shown(problem)
    if min(shares) == 1:
        return []
    each = (f"{task.name} {100 * share:.1f} %" for task, share in zip(problem.tasks, shares, strict=True))
    return [f"Available labels: {', '.join(each)}"]
