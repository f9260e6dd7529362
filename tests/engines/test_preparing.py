"""What Triton does once in a process is begun early, in a thread."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest
import torch
from waiting import HANG

from fedhv.engines.kernels import preparing


def test_a_stack_has_kernels_on_a_gpu_with_triton_alone(monkeypatch):
    monkeypatch.setattr(preparing.importlib.util, "find_spec", lambda name: object())
    gpu = torch.device("cuda")
    assert preparing.has_kernels(gpu, "tf32")
    assert not preparing.has_kernels(gpu, "float32")
    assert not preparing.has_kernels(torch.device("cpu"), "bf16")
    monkeypatch.setattr(preparing.importlib.util, "find_spec", lambda name: None)
    assert not preparing.has_kernels(gpu, "tf32")


@pytest.mark.parametrize("fails", [False, True])
def test_it_is_begun_once_and_an_error_comes_again_where_a_kernel_is_compiled(monkeypatch, fails):
    begun, ended = [], threading.Event()

    def of(device):
        begun.append((device, threading.current_thread() is threading.main_thread()))
        ended.set()
        if fails:
            raise RuntimeError("no C compiler")

    monkeypatch.setattr(preparing, "has_kernels", lambda device, precision: precision != "float32")
    monkeypatch.setitem(sys.modules, "fedhv.engines.kernels.starting", SimpleNamespace(Chip=SimpleNamespace(of=of)))
    failures = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    preparing._begin.cache_clear()
    gpu = torch.device("cuda")
    preparing.prepare_kernels(gpu, "float32")
    assert not begun
    preparing.prepare_kernels(gpu, "tf32")
    preparing.prepare_kernels(gpu, "tf32")
    assert ended.wait(HANG)
    for thread in threading.enumerate():
        if thread.name.startswith("prepare-kernels"):
            thread.join(HANG)
    assert begun == [(gpu, False)]
    assert not failures
    preparing._begin.cache_clear()
