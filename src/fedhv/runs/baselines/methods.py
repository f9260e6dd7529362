"""The methods of the baselines, and their learning rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedhv.methods import Uniform
from fedhv.methods.base import Conversation, Method, State
from fedhv.protocol.requests import Train
from fedhv.runs.config import Setting
from fedhv.runs.defaults import BASELINES
from fedhv.support.errors import InputError, unknown


@dataclass(frozen=True, kw_only=True)
class SingleTask(Uniform):
    """Federated averaging of one task's loss.

    Attributes:
        task: Its number.
    """

    name: ClassVar[str] = "single-task"

    task: int = 0

    def start(self, model: Tensor, tasks: int) -> State:
        """All weight is on the task."""
        return State(model, torch.nn.functional.one_hot(torch.tensor(self.task), tasks).float())

    def round(self, state: State) -> Conversation:
        """One round of federated averaging."""
        replies = yield Train(state.model, state.weights)
        return State(model=state.model + self.server_lr * replies.mean_update, weights=state.weights)


@dataclass(frozen=True, kw_only=True)
class Local(Uniform):
    """One client alone: its own steps, which no server averages."""

    name: ClassVar[str] = "local"


@dataclass(frozen=True, kw_only=True)
class Pooled(Uniform):
    """One client that holds everybody's examples."""

    name: ClassVar[str] = "pooled"


METHODS: dict[str, type[Uniform]] = {each.name: each for each in (SingleTask, Local, Pooled)}
assert tuple(METHODS) == BASELINES


def check_baselines(names: Sequence[str]) -> None:
    """Reject names that are not baselines, and one that is given twice."""
    for name in names:
        if name not in BASELINES:
            raise unknown("baseline", name, BASELINES)
    if len(set(names)) < len(names):
        raise InputError(f"`baselines` should name none twice. Found {list(names)}.")


def baseline_method(name: str, setting: Setting, tasks: int, like: Method | None = None) -> Uniform:
    """A baseline's method: rates of `[baselines.NAME]`, else of `uniform`, else those of the method `like`."""
    given = setting.baselines.get(name, {})
    usual = like if like is not None and not setting.rates("uniform") else setting.method(Uniform.name)
    rates: dict[str, Any] = {"server_lr": usual.server_lr, "local_lr": usual.local_lr}
    if name != SingleTask.name:
        rates["server_lr"] = 1.0  # no server is there to take other steps than the client's
    elif setting.training.optimiser == "sgd":
        rates["local_lr"] /= tasks
    return METHODS[name](**(rates | given))
