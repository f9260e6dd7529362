"""What does not fit into a GPU's memory is computed in smaller portions."""

from __future__ import annotations

import pytest
import torch

from fedhv import FedHVError
from fedhv.engines.portions import Portion


def test_it_is_halved_from_what_there_is_until_it_fits_and_stays_so():
    notes, released, tried = [], [], []
    portion = Portion(1_000_000, "{size} at a time", "not even one", notes)

    def compute(size: int) -> int:
        tried.append(size)
        if size > 3:
            raise torch.cuda.OutOfMemoryError("full")
        return size

    assert portion(10, compute, lambda: released.append(True)) == 3
    assert tried == [10, 5, 3]
    assert notes == ["5 at a time", "3 at a time"]
    assert len(released) == 2
    assert portion(2, compute) == 2
    assert portion(10, compute) == 3
    assert tried[3:] == [2, 3]


def test_not_even_one_is_an_error_in_one_line():
    def full(size: int) -> None:
        raise torch.cuda.OutOfMemoryError("full")

    with pytest.raises(FedHVError, match=r"^not even one$"):
        Portion(4, "{size}", "not even one", [])(4, full)


def test_other_errors_are_not_taken_for_short_memory():
    def wrong(size: int) -> None:
        raise RuntimeError("shapes do not match")

    notes: list[str] = []
    portion = Portion(8, "{size}", "not even one", notes)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        portion(8, wrong)
    assert (portion.size, notes) == (8, [])
