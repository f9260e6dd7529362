"""What makes results on a GPU repeatable: switches that are set and restored, and a look at a model's operations."""

from __future__ import annotations

import pytest
import torch
from torch.utils import deterministic

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
