"""What a finished run says about its reference: whether it held."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any


def too_low(summary: Mapping[str, Any]) -> str | None:
    """What a run's summary says about its reference, as a sentence without its end; None where it held."""
    watch = summary.get("watch")
    if not watch:
        return None
    count, raised = watch["rounds"], ", ".join(str(each["round"]) for each in watch["raised"])
    return (
        f"the reference was too low in {count} round{'s' if count > 1 else ''}, first in round {watch['first_round']}, "
        f"lowest slack {watch['lowest_slack']:.4g}" + (f"; raised in round {raised}" if raised else "")
    )


def warn_of(summary: Mapping[str, Any]) -> None:
    """Warn a caller whom nobody else tells that a reference did not hold, unless it was raised as asked."""
    said = too_low(summary)
    if said and not summary["watch"]["raised"]:
        run = f"{summary['method']} seed {summary['seed']}"
        warnings.warn(f"{run}: {said}. Calibrate it anew, or with a larger margin.", stacklevel=3)
