"""Examples run in this process: worker processes, each of which imports PyTorch, have tests of their own."""

import os
from pathlib import Path

import pytest

from fedhv.runs import config


@pytest.fixture(autouse=True)
def one_core(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0}, raising=False)


@pytest.fixture(scope="session")
def short_digits(tmp_path_factory) -> Path:
    """The setting of the embedded benchmark, with two local steps in place of ten."""
    text = config.shipped_settings()["digits"].read_text(encoding="utf-8")
    assert "local_steps = 10" in text
    path = tmp_path_factory.mktemp("settings") / "digits.toml"
    path.write_text(text.replace("local_steps = 10", "local_steps = 2"), encoding="utf-8")
    return path


@pytest.fixture
def few_steps(short_digits, monkeypatch):
    """What pages and docstrings show does not depend on the number of steps."""
    shipped = config.shipped_settings() | {"digits": short_digits}
    monkeypatch.setattr(config, "shipped_settings", lambda: shipped)
