"""What a run leaves on disk, for comparing two of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fedhv.runs.saving
from fedhv.runs.history import read_history
from fedhv.runs.record import Run
from fedhv.runs.summary import Summary


def save_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes."""
    monkeypatch.setattr(fedhv.runs.saving, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    monkeypatch.setattr(fedhv.runs.saving, "SHARE_OF_CHECKPOINTS", float("inf"))


def timeless(value: Any) -> Any:
    """Without what a clock says; of a run, what it came to."""
    if isinstance(value, Run | Summary):
        value = (value.summary if isinstance(value, Run) else value).as_dict()
    if isinstance(value, dict):
        return {key: timeless(each) for key, each in value.items() if "seconds" not in key}
    return [timeless(each) for each in value] if isinstance(value, list) else value


def records(folder: Path) -> list[dict[str, Any]]:
    """The lines of a history, without one that is being written."""
    return [round.as_dict() for round in read_history(folder)]


def contents(folder: Path) -> dict[str, Any]:
    """All that a finished run left, apart from seconds."""
    return {
        "model": (folder / "model.safetensors").read_bytes(),
        "checkpoint": (folder / "checkpoint.safetensors").read_bytes(),
        "history": timeless(records(folder)),
        "summary": timeless(json.loads((folder / "summary.json").read_text())),
        "config": (folder / "config.toml").read_text(),
    }
