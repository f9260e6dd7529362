"""A federated multi-task problem: a model, its tasks, examples, and the clients that hold them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import nn

from fedhv.problem.augmentation import Augmentation
from fedhv.problem.benchmark import Benchmark
from fedhv.problem.checking import as_tasks, checked
from fedhv.problem.clients import Clients
from fedhv.problem.examples import Collate, Examples
from fedhv.problem.holdout import check_validation, hold_out
from fedhv.problem.joining import as_examples, check_columns, join
from fedhv.problem.missing import check_labels, check_test_labels, whole_classes, with_whole_classes
from fedhv.problem.partitions import load_partitions
from fedhv.problem.tables import Columns, client_lists
from fedhv.problem.tasks import Task
from fedhv.support.errors import InputError

__all__ = ["Augmentation", "Benchmark", "Clients", "Examples", "Problem"]


@dataclass(frozen=True)
class Problem(Benchmark):
    """A benchmark with its clients.

    Attributes:
        clients: Which training examples each client trains on.
        validation: Which of the training examples each client holds out, to evaluate models on them; None where clients
            evaluate nothing. A client may hold out none.
    """

    clients: Clients = field(default_factory=lambda: Clients.of([]))
    validation: Clients | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not hasattr(self.clients, "sizes"):  # the clients of a federation elsewhere have a class of their own
            found = type(self.clients).__name__
            raise InputError(f"`clients` should be made by Clients.of. Found a {found}; give Clients.of(…).")
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
        check_labels(self.name, self.tasks, self.train.labelled, self.clients)
        if self.validation is not None:
            check_validation(self.name, self.clients, self.validation, len(self.train))
        if self.test is None and self.validation is None:
            raise InputError(
                f"Problem '{self.name}' should have test examples, or clients that hold out examples. Found neither; "
                "give `test` or `validation`."
            )
        if self.clients.complete and self.test is not None:
            check_test_labels(self.name, self.tasks, self.test.labelled)

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
        clients: Sequence[Any],
        test: Any = None,
        name: str = "custom",
        collate: Collate | None = None,
        validation: float = 0.0,
        **options: Any,
    ) -> Problem:
        """Your own problem from the clients' arrays. Large arrays and arrays on disk are not copied.

        Args:
            model: Returns a new model; its forward pass returns one output per task.
            tasks: The objectives, in the order of the outputs.
            clients: For every client its inputs and a list of m target arrays (None for a task without labels), or its
                `Examples`, or its torch `Dataset`.
            test: The same for evaluation; None where clients evaluate alone.
            name: The problem's name in tables.
            collate: Makes a minibatch from a list of single examples' inputs, as in `Examples.of`.
            validation: The share of its examples that every client holds out and evaluates models on.
            options: `prepare`, `augment`, `heads`, `norm` as in `Benchmark`.

        Examples:
            >>> Problem.from_clients(Net, [classification("risk", 2)], [(x0, [y0]), (x1, [y1])], test=(x, [y]))
        """
        tasks = as_tasks(name, tasks)
        clients = list(clients)
        check_columns(clients, test)
        parts = [as_examples(f"client {k}'s examples", each, tasks, collate, 0) for k, each in enumerate(clients)]
        if not parts:
            raise InputError(f"Problem '{name}' should have at least one client. Found none.")
        tested = [] if test is None else [as_examples("the test examples", test, tasks, collate)]
        whole = with_whole_classes(tasks, [*parts, *tested])
        parts, test = whole[: len(parts)], None if test is None else whole[-1]
        parts = [checked(name, f"client {k}'s", part, tasks) for k, part in enumerate(parts)]
        offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
        own = Clients(np.arange(int(offsets[-1]), dtype=np.int64), offsets)
        own, held = _held_out(own, validation)
        return cls(
            name=name,
            model=model,
            tasks=tasks,
            train=join(name, tasks, parts),
            test=test,
            clients=own,
            validation=held,
            **options,
        )

    @classmethod
    def from_table(
        cls,
        model: Callable[[], nn.Module],
        tasks: Sequence[Task],
        table: Any,
        *,
        inputs: Columns,
        targets: Mapping[str, Columns] | None = None,
        client: Any,
        test: Any = None,
        name: str = "custom",
        collate: Collate | None = None,
        validation: float = 0.0,
        **options: Any,
    ) -> Problem:
        """Your own problem from a pandas DataFrame, a HuggingFace `datasets.Dataset` or a dict of arrays.

        Args:
            model: Returns a new model; its forward pass returns one output per task.
            tasks: The objectives, in the order of the outputs.
            table: The training examples, a row each. Missing values in a task's column are missing labels.
            inputs: A column's name; a list of names, for a float32 matrix; or a tuple or dict of these.
            targets: For every task's name its column, or a list of columns; by default the column of that name.
            client: The column with the client of each row; clients are numbered in the order of its sorted values.
            test: A table with the same columns for evaluation; None where clients evaluate alone.
            name: The problem's name in tables.
            collate: As in `Examples.of`.
            validation: The share of its examples that every client holds out and evaluates models on.
            options: `prepare`, `augment`, `heads`, `norm` as in `Benchmark`.

        Examples:
            >>> Problem.from_table(
            ...     Net, [regression("stay", 0.5)], frame, inputs=["age", "weight"], targets={"stay": "days"},
            ...     client="hospital", test=later,
            ... )
        """
        tasks = as_tasks(name, tasks)
        columns = _columns_of(tasks, targets)
        train = whole_classes(tasks, Examples.from_table(table, inputs, columns, collate))
        own, held = _held_out(Clients.of(client_lists(table, client, len(train))), validation)
        return cls(
            name=name,
            model=model,
            tasks=tasks,
            train=train,
            test=None if test is None else whole_classes(tasks, Examples.from_table(test, inputs, columns, collate)),
            clients=own,
            validation=held,
            **options,
        )

    @classmethod
    def from_partitions(
        cls,
        model: Callable[[], nn.Module],
        tasks: Sequence[Task],
        partitioner: Any,
        *,
        inputs: Columns,
        targets: Mapping[str, Columns] | None = None,
        test: Any = None,
        name: str = "custom",
        collate: Collate | None = None,
        validation: float = 0.0,
        **options: Any,
    ) -> Problem:
        """Your own problem from a partitioner of `flwr-datasets`: every partition is a client.

        Args:
            model: Returns a new model; its forward pass returns one output per task.
            tasks: The objectives, in the order of the outputs.
            partitioner: Has `num_partitions` and `load_partition(i)`; its dataset must be set.
            inputs: Columns, as in `from_table`.
            targets: Columns, as in `from_table`.
            test: A table with the same columns for evaluation; None where clients evaluate alone.
            name: The problem's name in tables.
            collate: As in `Examples.of`.
            validation: As in `from_table`.
            options: `prepare`, `augment`, `heads`, `norm` as in `Benchmark`.

        Examples:
            >>> partitioner = DirichletPartitioner(num_partitions=3, partition_by="label", alpha=5.0)
            >>> partitioner.dataset = dataset
            >>> Problem.from_partitions(Net, tasks, partitioner, inputs="x", targets={"kind": "label"}, test=held_out)
        """
        tasks = as_tasks(name, tasks)
        columns = _columns_of(tasks, targets)

        def read(table: Any) -> Examples:
            return whole_classes(tasks, Examples.from_table(table, inputs, columns, collate))

        parts = [read(partition) for partition in load_partitions(partitioner)]
        tested = None if test is None else read(test)
        return cls.from_clients(model, tasks, parts, tested, name, validation=validation, **options)


def _held_out(clients: Clients, share: float) -> tuple[Clients, Clients | None]:
    """What clients train on, and what they hold out; None for a share of 0."""
    return hold_out(clients, share) if share else (clients, None)


def _columns_of(tasks: Sequence[Task], targets: Any) -> list[Columns]:
    """The columns of every task's targets, in the order of the tasks; without `targets` those of the tasks' names."""
    names = [task.name for task in tasks]
    if targets is None:
        return list(names)
    if not isinstance(targets, Mapping) or set(targets) != set(names):
        found = list(targets) if isinstance(targets, Mapping) else targets
        raise InputError(f"`targets` should name a column for every task, {names}. Found {found!r}.")
    return [targets[name] for name in names]
