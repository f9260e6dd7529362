"""The trained model of a run, as the user's own module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import torch
from torch import nn

from fedhv.benchmarks import load_benchmark
from fedhv.problem.initial import make_model
from fedhv.problem.norm_policy import NORMS, Norm
from fedhv.problem.norms import apply_norm
from fedhv.problem.problem import Benchmark
from fedhv.runs.config import GIVEN
from fedhv.runs.record import Run, read_run
from fedhv.support.errors import InputError
from fedhv.support.imports import import_object

Source: TypeAlias = Benchmark | Callable[[], nn.Module] | str
"""A `Problem` or `Benchmark`, a function that makes the model, or "package.module:name" of one of these."""


def load_model(run: Run | str | Path, problem: Source | None = None, *, data: str | None = None) -> nn.Module:
    """The model of a run with its trained parameters, in evaluation mode on the CPU.

    It is the module that the problem's `model` makes, BatchNorm layers included; under `norm="group"`, GroupNorm is in
    their place. The module takes prepared inputs: apply the problem's `prepare` first if there is one.

    Args:
        run: A `Run`, or a run's folder.
        problem: For a folder with a run on your own problem: the `Problem`, or the function or class that makes its
            model, or "package.module:name" of one of them. Benchmarks are found by their names.
        data: The folder of the datasets, for benchmarks that need it.

    Examples:
        >>> run = fedhv.run("digits", "uniform", rounds=2)
        >>> model = fedhv.load_model(run)
        >>> [tuple(output.shape) for output in model(torch.zeros(5, 1, 28, 28))]
        [(5, 10), (5, 10)]
    """
    run = as_run(run)
    found = source_of(run, problem, data)
    # The seed is that of the run's own module: buffers that no state dict has are the same.
    module = make_model(found.factory, 0)
    if found.norm == "group":
        apply_norm(module, found.norm)
    state = run.state_dict
    own = module.state_dict()
    for name in [*own, *state]:
        if name not in state or name not in own or state[name].shape != own[name].shape:
            here, there = (tuple(each[name].shape) if name in each else None for each in (own, state))
            raise InputError(
                f"The model should be that of the run. Found '{name}' with shape {here} in the model and {there} in "
                "the run (None: missing). Give the run's own problem."
            )
    module.load_state_dict(state)
    return module.eval()


@dataclass(frozen=True)
class ModelSource:
    """What a run's model is made from: its factory, its BatchNorm policy, and the benchmark where it is known."""

    factory: Callable[[], nn.Module]
    norm: Norm
    benchmark: Benchmark | None


def source_of(run: Run, problem: Source | None = None, data: str | None = None) -> ModelSource:
    """Find the model's factory: in the given problem, in the run, or by the name of its benchmark."""
    given = import_object(problem, "problem") if isinstance(problem, str) else problem
    if given is not None and not isinstance(given, Benchmark | nn.Module | type) and callable(given):
        with torch.random.fork_rng(devices=[]):
            made = given()  # a loader of a problem, or a model's factory
        given = made if isinstance(made, Benchmark) else given
    if given is None:
        given = run.problem if run.problem is not None else _named(run, data)
    recorded = run.table("setting", "training").get("norm")
    norm = cast(Norm, recorded) if recorded in NORMS else "refuse"
    if isinstance(given, Benchmark):
        return ModelSource(given.model, given.norm if norm == "refuse" else norm, given)
    if not callable(given) or isinstance(given, nn.Module):
        raise InputError(f"`problem` should be a Problem, or make a model: a class or a function. Found {given!r}.")
    return ModelSource(given, norm, None)


def benchmark_of(run: Run, problem: Source | None = None, data: str | None = None) -> tuple[Benchmark, Norm]:
    """The run's benchmark or problem and its BatchNorm policy, for work that also needs tasks and examples."""
    found = source_of(run, problem, data)
    if found.benchmark is None:
        raise InputError(f"`problem` should be a Problem, whose tasks and examples are needed. Found {problem!r}.")
    return found.benchmark, found.norm


def as_run(run: Run | str | Path) -> Run:
    """A run, from itself or from its folder."""
    if isinstance(run, Run):
        return run
    if not isinstance(run, str | Path):
        raise InputError(f"Expected a Run or a run's folder. Found {run!r}.")
    return read_run(run)


def _named(run: Run, data: str | None) -> Benchmark:
    name: Any = run.table("setting").get("benchmark")
    if name == GIVEN or not isinstance(name, str):
        where = f"{run.folder} has a run" if run.folder else "The run is one"
        raise InputError(
            f"{where} on your own problem, which no folder holds. Give the problem again: `problem=…` in Python, "
            "--problem package.module:function on the command line."
        )
    return load_benchmark(name, data)
