"""Systems other than Linux: nothing that only Linux has is needed for the demo's path."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from problems import everything_random
from waiting import HANG

import fedhv
from fedhv import InputError
from fedhv.engines import choose_engine
from fedhv.problem import devices
from fedhv.support import memory
from fedhv.support.pool import can_fork

HIDDEN = """
import multiprocessing.context, os, signal, sys

for module in ("fcntl", "resource"):
    sys.modules[module] = None  # an import of it fails as if it were not there
del signal.pthread_sigmask
for name in ("fork", "killpg", "preadv", "sched_getaffinity", "getuid"):
    delattr(os, name)
for name in ("fork", "forkserver"):
    multiprocessing.context._concrete_contexts.pop(name)
multiprocessing.get_all_start_methods = lambda: ["spawn"]
multiprocessing.set_start_method("spawn")
"""
"""Imported by Python itself at every start, of worker processes too."""

DEMO = """
import os, sys
from fedhv.cli import main

def call(words):
    sys.argv = ["fedhv", *words.split()]
    try:
        main()
    except SystemExit as end:
        assert end.code == 0, (words, end.code)

if __name__ == "__main__":
    short = " --rounds 1 --set federation.participants=2 --set training.local_steps=1 --set calibration.rounds=1"
    call("compare digits --methods fedhv,uniform --seeds 0 --jobs 2 --out study" + short)
    call("run digits --method uniform --resume --out study/again" + short)
    call("report study --no-figures")
    assert not hasattr(os, "fork")
"""


@pytest.mark.slow
def test_the_demos_path_needs_nothing_that_only_linux_has(tmp_path):
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "sitecustomize.py").write_text(HIDDEN)
    (tmp_path / "demo.py").write_text(DEMO)
    source = str(Path(fedhv.__file__).parents[1])
    path = os.pathsep.join([str(tmp_path / "hidden"), source])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "demo.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANG
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "study" / "fedhv-seed0" / "summary.json").exists()
    assert (tmp_path / "study" / "report" / "index.html").exists()
    assert "this system cannot fork worker processes" in done.stderr


def test_workers_are_not_forked_on_macos(monkeypatch):
    assert can_fork()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not can_fork()


def test_memory_that_a_system_does_not_report_is_zero(monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", None)
    monkeypatch.setattr(memory, "_private", lambda process: Path("/nothing/there").read_text())
    assert memory.held_memory() == 0


# --- Apple's GPU ------------------------------------------------------------------------------------------


@pytest.fixture
def apple(monkeypatch):
    """A machine that says it has Apple's GPU; what would be computed there is computed here, and counted."""
    went = []
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.nn.Module, "to", lambda self, device: self)
    real = torch.Tensor.to

    def to(self, *arguments, **named):
        if arguments and getattr(arguments[0], "type", arguments[0]) == "mps":
            assert self.dtype != torch.float64
            went.append(tuple(self.shape))
            return self.clone()
        return real(self, *arguments, **named)

    monkeypatch.setattr(torch.Tensor, "to", to)
    return went


def test_the_models_passes_are_computed_on_apples_gpu_and_the_sums_elsewhere(apple):
    problem = everything_random()
    options = {"rounds": 2, "local_steps": 2, "participants": 2, "quiet": True}
    there = fedhv.run(problem, "fedhv", device="mps", reference=[3.0, 3.0], **options)
    assert there.machine["device"] == "mps"
    assert there.machine["engine"] == "sequential"
    parameters_there = sum(value.numel() for value in there.state_dict.values())
    assert (parameters_there,) in apple
    count = len(apple)
    here = fedhv.run(problem, "fedhv", device="cpu", engine="sequential", reference=[3.0, 3.0], **options)
    assert len(apple) == count
    assert here.tasks == there.tasks


def test_what_apples_gpu_does_not_compute_is_refused(apple):
    with pytest.raises(InputError, match="Use --engine sequential"):
        choose_engine("stacked", "mps")
    with pytest.raises(InputError, match="The device 'mps' computes in float32"):
        choose_engine("auto", "mps", "bf16")


def test_a_machine_without_apples_gpu_says_so(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(InputError, match="torch finds no Apple GPU"):
        choose_engine("auto", "mps")
    assert devices.arithmetic_device("mps") == torch.device("cpu")
