"""Flower's own simulation, on Ray, gives what ours gives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from waiting import HANG

import fedhv
from fedhv.runs.record import read_finished
from flower.ray_simulation import METHOD, SMALL

pytest.importorskip("ray", reason="Ray is not installed: pip install 'fedhv[flower]'")
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_ray_simulation_runs_the_embedded_setting(tmp_path):
    environment = {
        **os.environ,
        "FLWR_HOME": str(tmp_path / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, str(ROOT / "tests" / "flower" / "ray_simulation.py"), str(tmp_path / "run")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr[-3000:]
    there = read_finished(tmp_path / "run")
    here = fedhv.run("digits", METHOD, engine="sequential", override=SMALL)
    assert [record["report"] for record in there.history] == [
        pytest.approx(record["report"], rel=1e-5) for record in here.history
    ]
    for name, value in here.state_dict.items():
        torch.testing.assert_close(there.state_dict[name], value, rtol=1e-5, atol=1e-6)
