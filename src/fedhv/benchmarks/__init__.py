"""The benchmarks: models, augmentation and composition of images."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from fedhv.support.errors import InputError, unknown
from fedhv.support.imports import import_object

if TYPE_CHECKING:
    from fedhv.problem.problem import Benchmark

BENCHMARKS: dict[str, str] = {
    "digits": "fedhv.benchmarks.digits:load",
    "multimnist": "fedhv.benchmarks.multimnist:load",
    "mnist-fmnist": "fedhv.benchmarks.mnist_fmnist:load",
    "cifar10-mnist": "fedhv.benchmarks.cifar10_mnist:load",
    "celeba5": "fedhv.benchmarks.celeba5:load",
    "tox21": "fedhv.benchmarks.tox21:load",
    "star": "fedhv.benchmarks.star:load",
}
"""The location of each benchmark's loader, which is imported at first use."""

COMPLETE = frozenset({"digits", "multimnist", "mnist-fmnist", "cifar10-mnist", "celeba5"})
"""Benchmarks in which every example has every label; they need not be loaded to check this."""


def load_benchmark(name: str, data: str | None = None) -> Benchmark:
    """A shipped benchmark by its name, or a user's benchmark as "package.module:function".

    Args:
        name: The benchmark. A user's function takes no argument, or the data directory as `data`.
        data: The folder of the datasets, for the benchmarks that need one.
    """
    from fedhv.problem.problem import Benchmark

    if name not in BENCHMARKS and ":" not in name:
        hint = "The name of your own benchmark is 'package.module:function'."
        raise unknown("benchmark", name, BENCHMARKS, hint=hint)
    loader = import_object(BENCHMARKS.get(name, name), "benchmark")
    if not callable(loader):
        raise InputError(f"'{name}' should be a function that returns a fedhv.Benchmark. Found {loader!r}.")
    parameters = inspect.signature(loader).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if not set(needed) <= {"data"}:
        raise InputError(f"'{name}' should take no argument, or the data directory as `data`. Found {needed}.")
    if any(p.name == "data" for p in parameters):
        from fedhv.data import data_directory

        benchmark = loader(data=data_directory(data))
    else:
        benchmark = loader()
    if not isinstance(benchmark, Benchmark):
        raise InputError(f"'{name}' should return a fedhv.Benchmark. Found {type(benchmark).__name__}.")
    return benchmark
