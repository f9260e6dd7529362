"""Warm start: a model that starts from given parameters instead of its initialisation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from pickle import UnpicklingError  # noqa: TID251  # the error alone: torch refuses to unpickle objects
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor, nn

from fedhv.problem.norms import apply_norm
from fedhv.problem.parameters import Layout
from fedhv.problem.problem import Problem
from fedhv.support.errors import InputError

MODEL, CHECKPOINT = "model.safetensors", "checkpoint.safetensors"
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
"""The buffers of a BatchNorm layer."""
DIGEST = 32
"""The bytes of a checkpoint's checksum, after its tensors."""


@dataclass(frozen=True)
class WarmStart:
    """A factory that returns another factory's model with these parameters and buffers."""

    factory: Callable[[], nn.Module]
    state: Mapping[str, Tensor]

    def __call__(self) -> nn.Module:
        """A fresh module with these parameters."""
        module = self.factory()
        module.load_state_dict(dict(self.state))
        return module


def warm_started(problem: Problem, source: Any) -> Problem:
    """The problem with a model that starts from the parameters of `source`.

    Args:
        problem: Its model must have the parameters that the source has, by name and shape.
        source: A run's folder, a file (.safetensors, a checkpoint, or .pt/.pth with a state dict), a state dict, or a
            module.
    """
    with torch.random.fork_rng(devices=[]):
        module = problem.model()
    state = _state(source, module, problem)
    own = module.state_dict()
    if problem.norm == "group":  # a run's model has no running statistics any more
        state = {name: own[name] for name in own if name.rpartition(".")[2] in STATISTICS} | dict(state)
    where = f"`init` ({source})" if isinstance(source, str | Path) else "`init`"
    for name, value in own.items():
        if name not in state:
            raise InputError(f"{where} should have the model's '{name}'. Found none of this name.")
        if state[name].shape != value.shape:
            raise InputError(
                f"{where}: '{name}' should have shape {tuple(value.shape)}. Found {tuple(state[name].shape)}."
            )
    for name, _ in module.named_parameters():
        if not bool(state[name].isfinite().all()):
            raise InputError(
                f"{where}: '{name}' should be finite. Found NaN or infinity; give a model that is trained."
            )
    foreign = sorted(set(state) - set(own))
    if foreign:
        raise InputError(
            f"{where} has '{foreign[0]}', which the model does not have. Give the state dict of the same model."
        )
    kept = {name: state[name].detach().cpu().to(value.dtype).clone() for name, value in own.items()}
    return replace(problem, model=WarmStart(problem.model, kept))


def _state(source: Any, module: nn.Module, problem: Problem) -> Mapping[str, Tensor]:
    if isinstance(source, nn.Module):
        return source.state_dict()
    if isinstance(source, Mapping):
        for name, value in source.items():
            if not isinstance(value, Tensor):
                raise InputError(f"`init`: '{name}' should be a tensor. Found {type(value).__name__}.")
        return source
    if not isinstance(source, str | Path):
        raise InputError(f"`init` should be a run's folder, a file, a state dict or a module. Found {source!r}.")
    path = Path(source)
    if path.is_dir():
        found = [path / name for name in (MODEL, CHECKPOINT) if (path / name).exists()]
        if not found:
            raise InputError(f"`init`: {path} holds neither {MODEL} nor {CHECKPOINT}. Name a run's folder or a file.")
        path = found[0]
    try:
        return _read(path, module, problem)
    except FileNotFoundError:
        raise InputError(f"`init`: there is no file {path}.") from None
    except UnpicklingError:
        raise InputError(
            f"`init`: {path} should be a state dict of tensors alone. Found other objects, which are not loaded; save "
            "`model.state_dict()`."
        ) from None
    except (OSError, SafetensorError, ValueError, RuntimeError) as error:
        raise InputError(f"`init`: {path} could not be read: {error}.") from None


def _read(path: Path, module: nn.Module, problem: Problem) -> Mapping[str, Tensor]:
    if path.suffix in (".pt", ".pth", ".bin"):
        # Tensors alone: nothing in the file is executed.
        found = torch.load(path, map_location="cpu", weights_only=True)  # noqa: TID251
        if not isinstance(found, Mapping) or not all(isinstance(value, Tensor) for value in found.values()):
            raise ValueError("expected a state dict")
        return found
    data = path.read_bytes()
    if not path.name.startswith("checkpoint"):
        return dict(load_tensors(data))
    theta = load_tensors(data[:-DIGEST])["model"]
    as_trained = copy.deepcopy(module)
    apply_norm(as_trained, problem.norm)
    layout = Layout.of(as_trained, len(problem.tasks), problem.heads)
    if theta.numel() != layout.d:
        raise ValueError(f"expected {layout.d} parameters, found {theta.numel()}")
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    values = layout.unflatten(theta)
    everywhere = {
        name: values[names[id(parameter)]]
        for name, parameter in module.named_parameters(remove_duplicate=False)
        if names[id(parameter)] in values
    }
    statistics = {name: values[name] for name, _ in module.named_buffers() if name in values}
    return module.state_dict() | everywhere | statistics
