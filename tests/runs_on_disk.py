"""What a run leaves on disk, for comparing two of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fedhv.runs.job
from fedhv.runs.history import read_history


def save_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes."""
    monkeypatch.setattr(fedhv.runs.job, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    monkeypatch.setattr(fedhv.runs.job, "SHARE_OF_CHECKPOINTS", float("inf"))


def timeless(value: Any) -> Any:
    """Without what a clock says."""
    if isinstance(value, dict):
        return {key: timeless(each) for key, each in value.items() if "seconds" not in key}
    return [timeless(each) for each in value] if isinstance(value, list) else value


def contents(folder: Path) -> dict[str, Any]:
    """All that a finished run left, apart from seconds."""
    return {
        "model": (folder / "model.safetensors").read_bytes(),
        "checkpoint": (folder / "checkpoint.safetensors").read_bytes(),
        "history": timeless(read_history(folder)),
        "summary": timeless(json.loads((folder / "summary.json").read_text())),
        "config": (folder / "config.toml").read_text(),
    }
