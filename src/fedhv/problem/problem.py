"""A federated multi-task problem: a model, its tasks, examples, and which client holds which of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from fedhv.problem.tasks import Task
from fedhv.support.errors import InputError


@dataclass(frozen=True)
class Examples:
    """n inputs and, for every task, n targets."""

    inputs: Tensor
    targets: tuple[Tensor, ...]

    @classmethod
    def of(cls, inputs: Any, targets: Sequence[Any]) -> Examples:
        """Examples from arrays or tensors; real numbers become float32, as the model's parameters are."""
        return cls(_many(inputs, "inputs"), tuple(_many(each, "targets") for each in targets))

    def __len__(self) -> int:
        return int(self.inputs.shape[0])

    def __getitem__(self, index: Any) -> Examples:
        return Examples(self.inputs[index], tuple(t[index] for t in self.targets))

    def to(self, device: torch.device | str) -> Examples:
        """The same examples on a device."""
        return Examples(self.inputs.to(device), tuple(t.to(device) for t in self.targets))


@dataclass(frozen=True)
class Clients:
    """Index lists, not objects: client k holds `indices[offsets[k]:offsets[k + 1]]` of the training examples.

    A million clients are two arrays.
    """

    indices: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, lists: Sequence[Any]) -> Clients:
        """From one index list per client."""
        arrays = [np.asarray(each, dtype=np.int64) for each in lists]
        offsets = np.concatenate([[0], np.cumsum([len(a) for a in arrays])]).astype(np.int64)
        return cls(np.concatenate(arrays) if arrays else np.empty(0, np.int64), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, client: int) -> np.ndarray:
        return self.indices[self.offsets[client] : self.offsets[client + 1]]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[k] for k in range(len(self)))

    @property
    def sizes(self) -> np.ndarray:
        """How many examples each client holds."""
        return np.diff(self.offsets)


class Augmentation(Protocol):
    """A random change of training minibatches, split into its draws and their effect.

    The draws are made in NumPy from the client's own random stream; the effect is one batched operation on the
    device. So every engine sees the same augmented images.
    """

    def draw(self, rng: np.random.Generator, steps: int, batch: int) -> np.ndarray:
        """float32 draws of shape (steps, batch, …)."""

    def apply(self, inputs: Tensor, draws: Tensor) -> Tensor:
        """The augmented inputs; the first axes of both arguments agree."""


@dataclass(frozen=True)
class Benchmark:
    """A problem before it is divided among clients.

    Attributes:
        name: What tables call it.
        model: Makes a fresh, randomly initialised model with one output per task. Parameters with
            `requires_grad=False` stay as it makes them.
        tasks: The m objectives, in the order of the model's outputs.
        train: All training examples.
        test: The examples that evaluation uses.
        prepare: From stored inputs to what the model takes (normalisation), batch by batch on the device.
        augment: Applied to training minibatches only.
        heads: For every task the prefix of its head's parameter names; all other parameters are shared. By
            default `heads.0`, `heads.1`, … if the model has such a list and parameters beside it, otherwise every
            parameter is shared.
        strata: Label columns that a partition may name, each n whole numbers; by default the targets themselves.
    """

    name: str
    model: Callable[[], nn.Module]
    tasks: tuple[Task, ...]
    train: Examples
    test: Examples
    prepare: Callable[[Tensor], Tensor] | None = None
    augment: Augmentation | None = None
    heads: tuple[str, ...] | None = None
    strata: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tasks", tuple(self.tasks))
        if isinstance(self.model, nn.Module):
            made = type(self.model).__name__
            raise InputError(
                f"`model` should make a model: a class or a function. Found a {made}; give `lambda: {made}(…)`."
            )
        if not self.tasks:
            raise InputError(f"Problem '{self.name}' should have at least one task. Found none.")
        _check_tasks(self.name, self.tasks)
        names = [task.name for task in self.tasks]
        if len(set(names)) < len(names):
            raise InputError(f"Problem '{self.name}' should name every task differently. Found {names}.")
        for split, examples in (("training", self.train), ("test", self.test)):
            _check(self.name, split, examples, self.tasks)


@dataclass(frozen=True)
class Problem(Benchmark):
    """A benchmark with its clients: all that a simulation needs to know about the world."""

    clients: Clients = field(default_factory=lambda: Clients.of([]))

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = self.clients.sizes
        if len(sizes) == 0:
            raise InputError(f"Problem '{self.name}' should have at least one client. Found none.")
        if sizes.min() == 0:
            raise InputError(
                f"Every client should hold at least one example. Found client {int(sizes.argmin())} empty; "
                "leave it out or give it examples."
            )
        low, high = int(self.clients.indices.min()), int(self.clients.indices.max())
        if low < 0 or high >= len(self.train):
            raise InputError(f"Clients should hold indices from 0 to {len(self.train) - 1}. Found {low} to {high}.")

    @classmethod
    def divide(cls, benchmark: Benchmark, clients: Clients) -> Problem:
        """A benchmark divided among clients."""
        shared = {name: getattr(benchmark, name) for name in Benchmark.__dataclass_fields__}
        return cls(**shared, clients=clients)

    @classmethod
    def from_clients(
        cls,
        model: Callable[[], nn.Module],
        tasks: Sequence[Task],
        clients: Sequence[tuple[Any, Sequence[Any]]],
        test: tuple[Any, Sequence[Any]],
        name: str = "custom",
        **options: Any,
    ) -> Problem:
        """Your own problem from the clients' arrays.

        Args:
            model: Makes a fresh model; its forward pass returns one output per task.
            tasks: The objectives, in the order of the outputs.
            clients: For every client its inputs and a list of m target arrays.
            test: Inputs and a list of m target arrays for evaluation.
            name: What tables call the problem.
            options: `prepare`, `augment`, `heads` as in `Benchmark`.
        """
        tasks = tuple(tasks)
        _check_tasks(name, tasks)
        parts = [_examples(f"client {k}'s examples", each) for k, each in enumerate(clients)]
        for k, part in enumerate(parts):
            _check(name, f"client {k}'s", part, tasks)
            _check_alike(k, part, parts[0])
        if not parts:
            raise InputError(f"Problem '{name}' should have at least one client. Found none.")
        train = Examples(
            torch.cat([part.inputs for part in parts]),
            tuple(torch.cat([part.targets[i] for part in parts]) for i in range(len(tasks))),
        )
        offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
        return cls(
            name=name,
            model=model,
            tasks=tasks,
            train=train,
            test=_examples("the test examples", test),
            clients=Clients(np.arange(len(train), dtype=np.int64), offsets),
            **options,
        )


def _check_tasks(problem: str, tasks: Sequence[Any]) -> None:
    for task in tasks:
        if not isinstance(task, Task):
            raise InputError(
                f"The tasks of problem '{problem}' should be made by classification, multilabel, regression or Task. "
                f"Found {task!r}."
            )


def _examples(whose: str, given: Any) -> Examples:
    """Inputs and a list of targets, as a user gives them."""
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise InputError(f"Problem: {whose} should be inputs and a list of targets, (x, [y1, y2]). {_found(given)}")
    inputs, targets = given
    if isinstance(targets, str | Mapping) or not isinstance(targets, Iterable) or getattr(targets, "ndim", 2) < 2:
        raise InputError(
            f"Problem: the targets of {whose} should be a list, an array for every task. {_found(targets)}"
        )
    return Examples.of(inputs, list(targets))


def _found(given: Any) -> str:
    size = f" of {len(given)}" if isinstance(given, Sequence) else ""
    return f"Found a {type(given).__name__}{size}."


def _many(values: Any, what: str) -> Tensor:
    try:
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError) as error:  # strings, objects, rows of different lengths
        found = getattr(values, "dtype", type(values).__name__)
        raise InputError(f"The {what} should be an array of numbers. Found {found}; encode or convert them.") from error
    if tensor.ndim == 0:
        raise InputError(f"The {what} should be an array, one entry for every example. Found the number {tensor}.")
    return tensor.float() if tensor.is_floating_point() else tensor


def _check_alike(k: int, examples: Examples, first: Examples) -> None:
    """All clients' examples have one shape."""
    pairs = zip((examples.inputs, *examples.targets), (first.inputs, *first.targets), strict=True)
    for i, (mine, others) in enumerate(pairs):
        if mine.shape[1:] != others.shape[1:]:
            raise InputError(
                f"All clients' examples should have one shape. Found {'targets' if i else 'inputs'} of shape "
                f"{tuple(mine.shape[1:])} with client {k}, {tuple(others.shape[1:])} with client 0."
            )


def _check(problem: str, split: str, examples: Examples, tasks: Sequence[Task]) -> None:
    """Reject examples that would poison a run: none at all, too few targets, NaN, labels out of range."""
    where = f"Problem '{problem}', {split} examples"
    n = len(examples)
    if n == 0:
        raise InputError(f"{where}: expected at least one. Found none.")
    if len(examples.targets) != len(tasks):
        raise InputError(
            f"{where}: expected targets for {len(tasks)} tasks. Found {len(examples.targets)} target arrays."
        )
    if examples.inputs.is_floating_point() and not bool(torch.isfinite(examples.inputs).all()):
        raise InputError(f"{where}: expected finite inputs. Found NaN or infinity; clean the data first.")
    for task, targets in zip(tasks, examples.targets, strict=True):
        if len(targets) != n:
            raise InputError(f"{where}: expected {n} targets for task '{task.name}'. Found {len(targets)}.")
        try:
            task.check(targets)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
