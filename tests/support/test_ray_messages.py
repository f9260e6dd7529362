"""Messages of a Ray cluster: what is sent arrives, with its bits and in memory that may be written."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

pytest.importorskip("ray", reason="Ray is not installed: pip install 'fedhv[ray]'")

from fedhv.support.ray.messages import ALIGNED, pack, unpack


def read_only(message):
    """The arrays as Ray's object store gives them, the worst case: read-only, and not aligned."""
    header, arrays = message
    moved = []
    for array in arrays:
        place = np.zeros(len(array) + 2 * ALIGNED, np.uint8)
        start = ALIGNED - place.ctypes.data % ALIGNED + 4
        place[start : start + len(array)] = array
        place.flags.writeable = False
        moved.append(place[start : start + len(array)])
    return header, moved


def test_tensors_of_every_kind_arrive_and_can_be_written():
    base = torch.arange(24.0).reshape(4, 6)
    sent = {
        "plain": base,
        "row": base[1],
        "transposed": base.T,
        "number": torch.tensor(3.0, dtype=torch.float64),
        "empty": torch.zeros(0, 5),
        "mask": base > 7,
        "half": base.to(torch.bfloat16),
        "parameter": torch.nn.Parameter(base),
    }
    found = unpack(read_only(pack(sent)))
    assert found.keys() == sent.keys()
    for name, value in sent.items():
        assert torch.equal(found[name], value)
        assert (found[name].dtype, type(found[name])) == (value.dtype, type(value))
    for name in ("plain", "row", "transposed", "number"):
        assert found[name].data_ptr() % ALIGNED == 0, "matrix products would have other bits"
        found[name] += 1
    assert base[1, 0] == 6


def test_shared_tensors_are_not_copied_if_they_are_aligned():
    examples = torch.arange(1000.0)
    header, (array,) = pack(examples, shared=[examples])
    place = np.zeros(len(array) + ALIGNED, np.uint8)
    start = -place.ctypes.data % ALIGNED
    place[start : start + len(array)] = array
    view = place[start : start + len(array)]
    assert unpack((header, [view])).data_ptr() == view.ctypes.data
    assert torch.equal(unpack(read_only((header, [array]))), examples)


def test_a_class_of_no_module_is_sent_itself():
    @dataclass(frozen=True)
    class Own:
        value: Tensor

    found = unpack(pack(Own(torch.ones(2))))
    assert torch.equal(found.value, torch.ones(2))
