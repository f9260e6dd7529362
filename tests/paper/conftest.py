"""The paper's six settings in miniature: the same names and rules on a small problem of our own."""

from __future__ import annotations

import pytest

from fedhv.paper.plan import SETTINGS

SMALL = """
description = "{name} in miniature"
benchmark = "problems:benchmark"

[federation]
clients = 30
participants = 10
samples_per_client = 8
alpha = 0.5

[training]
rounds = 2
batch_size = 4
local_steps = 2

[evaluation]
every = 1

[calibration]
rounds = 2
margin = 0.2
seeds = {seeds}
{under}
[references]
paper = [2.5, 2.75]
ours = [2.6, 2.8]

[methods.fedhv]
server_lr = 1.1
local_lr = 0.2
"""
UNDER = {"celeba5-a": "celeba5-b", "cifar10-mnist-a": "cifar10-mnist-b"}


@pytest.fixture
def six(monkeypatch, tmp_path):
    """Six small setting files under the paper's names; a test may edit them."""
    folder = tmp_path / "settings"
    folder.mkdir()
    paths = {}
    for name in SETTINGS:
        family = UNDER.get(name, name)
        under = f'setting = "{family}"' if family in UNDER.values() else ""
        seeds = "[0, 1]" if family == "celeba5-b" else "[0]"
        paths[name] = folder / f"{name}.toml"
        paths[name].write_text(SMALL.format(name=name, seeds=seeds, under=under))
    monkeypatch.setattr("fedhv.runs.config.shipped_settings", lambda: paths)
    return paths
