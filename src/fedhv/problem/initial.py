"""The initial model: the model's own initialisation, as a function of the seed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedhv.problem.generators import seeded
from fedhv.problem.norm_policy import Norm
from fedhv.problem.norms import apply_norm
from fedhv.problem.parameters import flatten
from fedhv.support.errors import InputError


def initial_model(factory: Callable[[], nn.Module], seed: int, norm: Norm = "refuse") -> Tensor:
    """θ⁰ from the model's own initialisation, the same for the same seed whatever ran before."""
    module = make_model(factory, seed)
    if norm != "refuse":
        apply_norm(module, norm)
    return flatten(module)


def make_model(factory: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A model from the factory, seeded; the generators of torch, Python and NumPy are restored afterwards."""
    with torch.random.fork_rng(devices=[]), seeded(seed):
        _seed(seed)
        module = factory()
    if not isinstance(module, nn.Module):
        raise InputError(f"The model factory should return a torch module. Found {type(module).__name__}.")
    return module


def _seed(seed: int) -> None:
    """Seed torch, with its accelerators where there are any: a factory may place parameters there.

    Without one, `torch.manual_seed` keeps a stack trace for every kind of accelerator at every call.
    """
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)
