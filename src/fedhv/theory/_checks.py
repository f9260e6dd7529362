"""Checks of the assumptions of the formulas, with errors that name the violated one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch import Tensor

from fedhv.methods.weights import Vector, slacks
from fedhv.support.errors import InputError


def array(value: Any) -> np.ndarray:
    """Numeric values as a float64 array."""
    return np.asarray(value.detach().cpu().double() if isinstance(value, Tensor) else value, dtype=np.float64)


def vector(name: str, value: Vector, *, size: int | None = None, least: float = -math.inf) -> np.ndarray:
    """Finite numbers, one per task on the last axis, none below `least`."""
    v = array(value)
    if v.ndim == 0 or v.shape[-1] == 0 or (size is not None and v.shape[-1] != size):
        expected = "one number per task" if size is None else f"one number per task ({size})"
        raise InputError(f"Parameter `{name}` should hold {expected}. Found `{name}` of shape {v.shape}.")
    if not np.isfinite(v).all():
        raise InputError(f"Parameter `{name}` should be finite. Found `{name} = {v.tolist()}`.")
    if (v < least).any():
        bound = "nonnegative" if least == 0 else f"at least {least}"
        raise InputError(f"Parameter `{name}` should be {bound}. Found `{name} = {v.tolist()}`.")
    return v


def history(name: str, value: Vector) -> np.ndarray:
    """Finite nonnegative numbers for every round, T × m."""
    found = vector(name, value, least=0)
    if found.ndim != 2:
        raise InputError(
            f"Parameter `{name}` should be a matrix, rounds × tasks. Found `{name}` of shape {found.shape}."
        )
    return found


def histories(
    weights: Vector, reports: Vector, losses: Vector, tasks: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The weights, reports and losses of a run, T × m each."""
    w = vector("weights", weights, size=tasks, least=0)
    estimates = vector("reports", reports, size=tasks, least=0)
    truth = vector("losses", losses, size=tasks, least=0)
    if truth.ndim != 2 or not w.shape == estimates.shape == truth.shape:
        raise InputError(
            "Parameters `weights`, `reports` and `losses` should be matrices of one shape, rounds × tasks. "
            f"Found shapes {w.shape}, {estimates.shape} and {truth.shape}."
        )
    return w, estimates, truth


def positive_vector(name: str, value: Vector, *, size: int | None = None) -> np.ndarray:
    """Positive finite numbers, one per task."""
    v = vector(name, value, size=size)
    if (v <= 0).any():
        raise InputError(f"Parameter `{name}` should be positive. Found `{name} = {v.tolist()}`.")
    return v


def positive(name: str, value: float) -> float:
    """A positive finite number."""
    if not (value > 0 and math.isfinite(value)):
        raise InputError(f"Parameter `{name}` should be positive and finite. Found `{name} = {value}`.")
    return float(value)


def nonnegative(name: str, value: float) -> float:
    """A nonnegative finite number."""
    if not (value >= 0 and math.isfinite(value)):
        raise InputError(f"Parameter `{name}` should be nonnegative and finite. Found `{name} = {value}`.")
    return float(value)


def probability(name: str, value: float) -> float:
    """A number strictly between zero and one."""
    if not 0 < value < 1:
        raise InputError(f"Parameter `{name}` should lie in (0, 1). Found `{name} = {value}`.")
    return float(value)


def whole(name: str, value: int, *, least: int = 1, most: int | None = None) -> int:
    """A whole number from `least` to `most`."""
    if not math.isfinite(value) or value != int(value) or value < least or (most is not None and value > most):
        span = f"at least {least}" if most is None else f"from {least} to {most}"
        raise InputError(f"Parameter `{name}` should be a whole number {span}. Found `{name} = {value}`.")
    return int(value)


def safe_losses(losses: Vector, reference: Vector) -> tuple[np.ndarray, np.ndarray]:
    """Losses and reference on the domain of the theory: every loss nonnegative and below its reference."""
    r = positive_vector("reference", reference)
    f = vector("losses", losses, size=r.shape[-1], least=0)
    if not (slacks(f, r) > 0).all():
        raise InputError(
            f"Parameter `reference` should exceed the losses {f.tolist()}. Found `reference = {r.tolist()}`."
        )
    return f, r


def gradients(task_gradients: Any, tasks: int | None = None) -> Any:
    """An m × d matrix of finite task gradients, of the same type as the argument."""
    j = task_gradients if isinstance(task_gradients, Tensor) else array(task_gradients)
    if j.ndim != 2 or j.shape[0] == 0 or (tasks is not None and j.shape[0] != tasks):
        rows = "one row per task" if tasks is None else f"one row per task ({tasks})"
        raise InputError(
            f"Parameter `task_gradients` should be a matrix with {rows}. "
            f"Found `task_gradients` of shape {tuple(j.shape)}."
        )
    finite = j.isfinite().all() if isinstance(j, Tensor) else np.isfinite(j).all()
    if not bool(finite):
        raise InputError("Parameter `task_gradients` should be finite. Found infinite or undefined entries.")
    return j
