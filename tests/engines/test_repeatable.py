"""What makes results on a GPU repeatable: switches that are set and restored, and a look at a model's operations."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch.utils import deterministic
from waiting import HANG

from fedhv.engines.repeatable import Repeatable, Watch


def switches():
    cudnn = torch.backends.cudnn
    algorithms = torch.are_deterministic_algorithms_enabled()
    return cudnn.deterministic, cudnn.benchmark, algorithms, deterministic.fill_uninitialized_memory


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    before = switches()
    yield
    assert switches() == before


def gradient(pick):
    """The gradient of a mapped function of a table."""
    table = torch.randn(3, 5, 4).requires_grad_()
    index = torch.randint(0, 5, (3, 6, 4))
    torch.autograd.grad(torch.func.vmap(pick)(table, index).sum(), table)


def test_a_model_without_such_sums_stays_fast():
    here = Repeatable()
    try:
        assert switches()[:3] == (True, False, False)
        with here.watching():
            gradient(lambda table, index: torch.relu(table).sum())
        assert not torch.are_deterministic_algorithms_enabled(), "nothing is added by index"
        with here.watching():  # only the first step is watched
            gradient(lambda table, index: table.gather(0, index))
        assert not torch.are_deterministic_algorithms_enabled()
    finally:
        here.restore()


def test_a_model_that_adds_by_index_needs_the_switch():
    here = Repeatable()
    try:
        with here.watching():
            gradient(lambda table, index: table.gather(0, index))  # its gradient is a `scatter_add`
        assert switches() == (True, False, True, False)
    finally:
        here.restore()


def test_sums_of_whole_numbers_are_exact():
    found = []
    with Watch(lambda: found.append(1)):
        torch.arange(5).cumsum(0)
        assert not found
        torch.rand(5).cumsum(0)
    assert found == [1]


def test_switches_do_not_load_the_compiler():
    """Loading it takes seconds, in which a first round waits and an interrupt is not answered."""
    code = """
import sys
import torch
from fedhv.engines.repeatable import Repeatable
here = Repeatable()
with here.watching():
    table = torch.randn(5, 4).requires_grad_()
    torch.autograd.grad(table.gather(0, torch.zeros(6, 4, dtype=torch.long)).sum(), table)
assert torch.are_deterministic_algorithms_enabled()
here.restore()
assert not torch.are_deterministic_algorithms_enabled()
print(*[name for name in ("torch._dynamo", "torch._inductor") if name in sys.modules])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=HANG)
    assert run.stdout.split() == []
