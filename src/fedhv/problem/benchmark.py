"""A problem before it is divided among clients: a model, its tasks and examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from torch import nn

from fedhv.problem.augmentation import Augmentation
from fedhv.problem.checking import as_tasks, checked
from fedhv.problem.examples import Examples
from fedhv.problem.norm_policy import Norm, check_norm
from fedhv.problem.tasks import Task
from fedhv.problem.trees import Inputs
from fedhv.support.errors import InputError


@dataclass(frozen=True)
class Benchmark:
    """A problem before it is divided among clients.

    Attributes:
        name: Its name in tables.
        model: Returns a new, randomly initialised model with one output per task. Parameters with
            `requires_grad=False` are not trained.
        tasks: The m objectives, in the order of the model's outputs.
        train: All training examples.
        test: The examples that evaluation uses; None where clients evaluate on examples that they hold out.
        prepare: Maps stored inputs to the model's inputs (normalisation), batch by batch on the device. Inputs of
            several parts are a tuple or dict in both.
        augment: Applied to training minibatches only.
        heads: For every task the prefix of its head's parameter names; all other parameters are shared. By
            default `heads.0`, `heads.1`, … if the model has such a list and other parameters; otherwise every
            parameter is shared.
        strata: Label columns that a partition may name, each n whole numbers; by default the targets themselves.
        missing_labels: Whether clients that live elsewhere may lack labels; what examples here lack is found by itself.
        norm: What becomes of the model's BatchNorm layers: "refuse" them, keep them "frozen" in evaluation mode, leave
            them "local" to each client, "average" their statistics, or replace them by "group" normalisation.
    """

    name: str
    model: Callable[[], nn.Module]
    tasks: tuple[Task, ...]
    train: Examples
    test: Examples | None
    prepare: Callable[[Inputs], Inputs] | None = None
    augment: Augmentation | None = None
    heads: tuple[str, ...] | None = None
    strata: dict[str, np.ndarray] = field(default_factory=dict)
    missing_labels: bool = False
    norm: Norm = "refuse"

    def __post_init__(self) -> None:
        check_norm("norm", self.norm)
        object.__setattr__(self, "tasks", as_tasks(self.name, self.tasks))
        if isinstance(self.model, nn.Module):
            made = type(self.model).__name__
            raise InputError(
                f"`model` should make a model: a class or a function. Found a {made}; give `lambda: {made}(…)`."
            )
        if self.augment is not None and not (hasattr(self.augment, "draw") and hasattr(self.augment, "apply")):
            found = type(self.augment).__name__
            raise InputError(f"`augment` should be an Augmentation, with `draw` and `apply`. Found a {found}.")
        if not self.tasks:
            raise InputError(f"Problem '{self.name}' should have at least one task. Found none.")
        names = [task.name for task in self.tasks]
        if len(set(names)) < len(names):
            raise InputError(f"Problem '{self.name}' should name every task differently. Found {names}.")
        for split, words in (("train", "training"), ("test", "test")):
            if getattr(self, split) is not None:
                object.__setattr__(self, split, checked(self.name, words, getattr(self, split), self.tasks))
