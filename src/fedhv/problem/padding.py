"""Padding of examples of different lengths in a minibatch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedhv.problem.trees import Inputs
from fedhv.support.errors import InputError


def padded(items: Sequence[Any], value: float = 0) -> Inputs:
    """A minibatch of sequences, padded to the longest; use it as `collate`.

    Args:
        items: Sequences of different lengths, each of shape (length, …); or dicts of them.
        value: The padding value.

    Returns:
        The sequences and a mask that is False for padding: the model's two positional arguments. For dicts, a dict with
        every entry padded: the model's keyword arguments. It has only the masks that the items have.

    Examples:
        >>> padded([np.array([5, 6, 7]), np.array([8])])
        (tensor([[5, 6, 7], [8, 0, 0]]), tensor([[True, True, True], [True, False, False]]))
    """
    if isinstance(items[0], Mapping):
        return {name: _filled([item[name] for item in items], value)[0] for name in items[0]}
    return _filled(items, value)


def _filled(items: Sequence[Any], value: float) -> tuple[Tensor, Tensor]:
    sequences = [each if isinstance(each, Tensor) else torch.as_tensor(np.array(each)) for each in items]
    if any(each.ndim == 0 for each in sequences):
        return torch.stack(sequences), torch.ones(len(sequences), dtype=torch.bool)
    if len({each.shape[1:] for each in sequences}) > 1:
        shapes = sorted({tuple(each.shape[1:]) for each in sequences})[:2]
        raise InputError(
            f"`padded` pads the first axis. Found examples whose other axes differ, {shapes[0]} and {shapes[1]}."
        )
    lengths = torch.tensor([len(each) for each in sequences])
    longest = max(1, int(lengths.max()))
    whole = sequences[0].new_full((len(sequences), longest, *sequences[0].shape[1:]), value)
    for row, sequence in zip(whole, sequences, strict=True):
        row[: len(sequence)] = sequence
    return whole, torch.arange(longest)[None] < lengths[:, None]
