"""Devices without double precision: they compute a model's passes, and everything else is on the CPU."""

from __future__ import annotations

import torch

from fedhv.problem.trees import Inputs, tree_map

FLOAT32_ONLY = ("mps",)
"""Devices without double precision."""


def arithmetic_device(device: torch.device | str) -> torch.device:
    """Where vectors, sums and examples are, for models that are computed on a device."""
    device = torch.device(device)
    return torch.device("cpu") if device.type in FLOAT32_ONLY else device


def moved(inputs: Inputs, device: torch.device) -> Inputs:
    """Inputs or outputs on another device."""
    return tree_map(lambda leaf: leaf.to(device), inputs)
