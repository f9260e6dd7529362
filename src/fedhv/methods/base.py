"""The method interface. A round is a generator: it yields requests, receives replies, and returns the next state.

It does not depend on where clients are computed. `drive` runs it with any function that answers requests.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from fedhv.protocol.request import Replies, Request
from fedhv.support.errors import InputError
from fedhv.support.numbers import is_number

Conversation = Generator[Request, Any, "State"]
"""The generator of one round: it yields requests, receives their `Replies`, and returns the next state."""

RATES = frozenset({"server_lr", "local_lr"})
"""The learning rates of every method."""


@dataclass(frozen=True)
class State:
    """The server's state between rounds.

    Attributes:
        model: θᵗ, one flat vector.
        weights: wᵗ, the task weights.
        memory: Other tensors that the method needs in the next round, on the model's device; saved in checkpoints.
        record: Entries of the finished round for the history; not needed to continue.
    """

    model: Tensor
    weights: Tensor
    memory: Mapping[str, Tensor] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)

    def to(self, device: torch.device | str) -> State:
        """The same state with its model and memory on a device; the weights stay on the CPU."""
        memory = {name: value.to(device) for name, value in self.memory.items()}
        return replace(self, model=self.model.to(device), memory=memory)


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """One federated multi-objective method. Its fields are its hyper-parameters.

    Attributes:
        server_lr: η_g.
        local_lr: η_ℓ, the clients' learning rate.
    """

    name: ClassVar[str] = ""
    rates_of: ClassVar[str] = "fedhv"
    """The method whose learning rates this one uses if a setting has none for it."""

    server_lr: float = 1.0
    local_lr: float = 0.1

    def __new__(cls, *_: Any, **given: Any) -> Self:
        """Remember which hyper-parameters were given: a setting fills in learning rates that were not."""
        method = super().__new__(cls)
        object.__setattr__(method, "given", frozenset(given))
        return method

    def __post_init__(self) -> None:
        for each in fields(self):  # numbers of NumPy, for example from a sweep, become Python's for files and messages
            value = getattr(self, each.name)
            if isinstance(value, np.generic):
                object.__setattr__(self, each.name, value.item())
        for name in sorted(RATES):
            value = getattr(self, name)
            if not (is_number(value) and 0 < value < np.inf):
                raise InputError(f"Method '{self.label}': `{name}` should be positive and finite. Found {value!r}.")

    @property
    def label(self) -> str:
        """The name in runs and tables."""
        return self.name or type(self).__name__

    def start(self, model: Tensor, tasks: int) -> State:
        """The state before the first round: w⁰ is uniform."""
        return State(model, torch.full((tasks,), 1 / tasks))

    def check(self, tasks: int) -> None:  # noqa: B027 — most hyper-parameters suit any number of tasks
        """Reject hyper-parameters that do not fit this number of tasks."""

    @abstractmethod
    def round(self, state: State) -> Conversation:
        """One round of the method's algorithm."""

    def conversation(self, state: State) -> Conversation:
        """The generator that the server runs: the round, wrapped in its parts."""
        return self.round(state)


def check_conversation(method: Method, conversation: object) -> None:
    """Raise an error if a method's round is not a generator."""
    if not isinstance(conversation, Generator):
        found = type(conversation).__name__
        raise InputError(
            f"Method '{method.label}': `round` should yield requests, such as fedhv.Train. It returned a {found}."
        )


def check_state(method: Method, after: object, before: State) -> None:
    """Raise an error if a round does not end with a State like the one before."""
    if not isinstance(after, State):
        found = type(after).__name__
        raise InputError(f"Method '{method.label}': `round` should return a fedhv.State. It returned a {found}.")
    for name in ("model", "weights"):
        wanted, found = getattr(before, name).shape, getattr(after, name)
        if not isinstance(found, Tensor) or found.shape != wanted:
            what = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
            raise InputError(
                f"Method '{method.label}': the State's `{name}` should be a tensor of {wanted.numel()} numbers. "
                f"Found {what}."
            )
    if after.model.dtype != before.model.dtype:
        wanted, other = (str(each.model.dtype).removeprefix("torch.") for each in (before, after))
        raise InputError(
            f"Method '{method.label}': the State's `model` should be of {wanted}. Found {other}; write `.float()`. "
            "Reported losses are of float64, and so is what is computed with them."
        )
    for name in ("memory", "record"):
        if not isinstance(getattr(after, name), Mapping):
            kind = type(getattr(after, name)).__name__
            raise InputError(f"Method '{method.label}': the State's `{name}` should be a dict. Found {kind}.")
    for name, value in after.memory.items():
        if not isinstance(value, Tensor):
            raise InputError(
                f"Method '{method.label}': the State's memory '{name}' should be a tensor, which checkpoints can hold. "
                f"Found {type(value).__name__}; write torch.tensor(…)."
            )


def checked_round(method: Method, state: State) -> Conversation:
    """The method's round, checked at its start and end, for parts that wrap it."""
    conversation = method.round(state)
    check_conversation(method, conversation)
    after = yield from conversation
    check_state(method, after, state)
    return after


def takes_reference(method: Method) -> bool:
    """Whether it has a hyper-parameter `reference`, as FedHV does; a user's method may have one."""
    return hasattr(method, "reference")


def own_rates(cls: type[Method]) -> set[str]:
    """The learning rates for which a class has a default of its own, in place of the interface's."""
    below = [each for each in cls.__mro__ if issubclass(each, Method) and each is not Method]
    return {name for name in RATES if any(name in inspect.get_annotations(each) for each in below)}


def lacking_rates(method: Method) -> set[str]:
    """The learning rates that neither the caller nor the method's class has chosen."""
    defaults = {each.name: each.default for each in fields(method)}
    given = getattr(method, "given", RATES) | own_rates(type(method))
    return {name for name in RATES if name not in given and getattr(method, name) == defaults[name]}


def reference_of(method: Method) -> tuple[float, ...] | None:
    """Its reference, if it takes one and has it."""
    return getattr(method, "reference", None)


def needs_reference(method: Method) -> bool:
    """Whether it takes a reference and has none yet."""
    return takes_reference(method) and reference_of(method) is None


def with_reference(method: Method, reference: tuple[float, ...]) -> Method:
    """The method with its reference; only for methods that take one."""
    changes: dict[str, Any] = {"reference": reference}
    return replace(method, **changes)


def drive(conversation: Conversation, answer: Callable[[Request], Replies]) -> State:
    """Run a conversation to its end."""
    try:
        request = next(conversation)
        while True:
            request = conversation.send(answer(request))
    except StopIteration as end:
        state: State = end.value
        return state
