"""Fingerprints: digests of the data, the model, the tasks and the method's code, which fix a run beside its setting.

A folder's `config.toml` has a digest of each. A run whose digests differ is another run, and its results are not used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedhv.methods.base import Method
from fedhv.problem.drawing import KeyedDropout
from fedhv.problem.network import Network
from fedhv.problem.problem import Examples, Problem
from fedhv.problem.stored import CHECKED, Collated, Joined, Rows, Stored
from fedhv.problem.tasks import Task
from fedhv.support.code import Pieces, digest, digest_arrays

NUMERICS = 2
"""Incremented by every version of the package whose runs have other numbers."""

Fingerprint = dict[str, str | int]

WHAT = {
    "inputs": "the training inputs",
    "targets": "the training targets",
    "test": "the test examples",
    "clients": "the examples of each client",
    "model": "the model",
    "tasks": "the tasks (names, losses, scores, metrics)",
    "preparation": "how inputs are prepared or augmented",
    "method": "the method's code",
    "numerics": "the version of the package's numbers",
}
"""The name of each digest in messages."""

NO_TEST = digest_arrays([])
"""The digest of the test examples of a problem that has none."""

_KEPT = "_fingerprint"


def fingerprint(problem: Problem, method: Method) -> Fingerprint:
    """The digests of a run by name. Those of a problem are computed once and stored with it."""
    return of_problem(problem) | {"method": digest(type(method)), "numerics": NUMERICS}


def of_problem(problem: Problem) -> Fingerprint:
    """The digests of the problem alone."""
    kept: Fingerprint | None = vars(problem).get(_KEPT)
    if kept is None:
        kept = vars(problem)[_KEPT] = _of_problem(problem)
    return kept


def changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs between two fingerprints, in words."""
    return [words for name, words in WHAT.items() if old.get(name) != new.get(name)]


def _of_problem(problem: Problem) -> Fingerprint:
    test, held = problem.test, [each for each in (problem.clients, problem.validation) if each is not None]
    return {
        "inputs": digest_arrays(_arrays(problem.train.inputs)),
        "targets": digest_arrays([*_arrays(problem.train.targets), *_masks(problem.train)]),
        "test": NO_TEST if test is None else digest_arrays([*_arrays((test.inputs, test.targets)), *_masks(test)]),
        "clients": digest_arrays([lists for each in held for lists in (each.indices, each.offsets)]),
        "model": _of_model(problem),
        "tasks": digest([_of_task(task) for task in problem.tasks]),
        "preparation": digest(problem.prepare, problem.augment),
    }


def _of_task(task: Task) -> tuple[Any, ...]:
    """A task without a scale, metrics and functions of entries has the digest that it had before there were any."""
    # Those of the package's own tasks compute what their loss and score do.
    entries = [
        each for each in (task.entry_loss, task.entry_score) if getattr(each, "__module__", "") != Task.__module__
    ]
    added = [each for each in (task.scale, task.metrics, *entries) if each]
    return (task.name, task.loss, task.score, task.outputs, *added)


def _of_model(problem: Problem) -> str:
    """Its code, its structure, and the values that no run trains (buffers and frozen parameters)."""
    module = Network(problem.model, len(problem.tasks), problem.heads, "cpu", problem.norm).module
    kinds = {type(each) for each in module.modules()} - {KeyedDropout}  # it computes what nn.Dropout does
    own = sorted(
        (kind for kind in kinds if not kind.__module__.startswith("torch.")), key=lambda kind: kind.__qualname__
    )
    shapes = [(name, tuple(value.shape), value.requires_grad) for name, value in module.named_parameters()]
    fixed = [value for _, value in _fixed(module)]
    return digest(problem.model, own, repr(module), shapes, problem.heads, digest_arrays(fixed))


def _fixed(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_buffers()
    yield from ((name, value.detach()) for name, value in module.named_parameters() if not value.requires_grad)


def _masks(examples: Examples) -> list[np.ndarray]:
    """Which labels are there; nothing where all are."""
    return [np.ones(0, bool) if mask is None else mask.cpu().numpy() for mask in examples.labelled or ()]


def _arrays(data: Any) -> Iterator[Any]:
    """All arrays of inputs or targets. Stored inputs are read in pieces: they may be larger than memory."""
    if isinstance(data, Tensor):
        yield data.detach().cpu().numpy()
    elif isinstance(data, Collated):
        yield digest(data.collate)
        for item in data.items:
            yield from _arrays(item)
    elif isinstance(data, Rows | Joined):
        yield Pieces(torch.empty(0, dtype=data.dtype).numpy().dtype, data.shape, _pieces(data))
    elif isinstance(data, Mapping):
        for key in sorted(data):
            yield from _arrays(data[key])
    elif isinstance(data, list | tuple) and not all(isinstance(each, int | float) for each in data):
        for each in data:
            yield from _arrays(each)
    elif data is not None:
        yield data


def _pieces(data: Stored) -> Iterator[np.ndarray]:
    step = max(1, CHECKED // max(1, data[:1].numel()))
    for start in range(0, len(data), step):
        yield data[start : start + step].numpy()
