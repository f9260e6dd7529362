"""What to do after a run, in one line each."""

from __future__ import annotations

import shlex
from pathlib import Path


def next_steps(folder: Path, setting: str, method: str) -> list[str]:
    """Commands that go on from a finished run.

    Args:
        folder: The run's.
        setting: As the user named it.
        method: The method's label.
    """
    place, named = shlex.quote(str(folder)), shlex.quote(setting)
    steps = {
        f"fedhv report {place}": "tables, figures and a page",
        f"fedhv compare {named}": "all methods, several seeds",
    }
    if method == "fedhv":
        steps[f"fedhv diagnose {place}"] = "was the reference safe?"
    width = max(map(len, steps))
    return ["Next:", *(f"  {command:<{width}}  {what}" for command, what in steps.items())]
