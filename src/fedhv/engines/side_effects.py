"""What a pass of the model should leave as it is; otherwise a run depends on what was computed before.

Parameters, inputs and buffers are compared before and after a pass, and the losses of a pass with those of a later one.
A parameter that the model also reads past its modules, such as `self.weights = [self.layer.weight]`, has another value
there than in θ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fedhv.problem.generators import seeded
from fedhv.problem.parameters import trained_entries
from fedhv.problem.problem import Examples
from fedhv.problem.trees import Inputs, leaves
from fedhv.protocol.client import Client
from fedhv.support.errors import InputError

SHIFT = 0.01
"""By how much parameters are changed to see whether the outputs follow; relative, and absolute for zeros."""


def check_side_effects(client: Client, theta: Tensor, batch: Examples) -> None:
    """Reject a model that writes into parameters or inputs, keeps something, or reads parameters past its modules."""
    with torch.no_grad():
        for training in (False, True):
            _check_writes(client, theta, batch.inputs, training)
        _check_repeats(client, theta, batch)
        _check_references(client, theta * (1 + SHIFT) + SHIFT, batch.inputs)


def _check_writes(client: Client, theta: Tensor, inputs: Inputs, training: bool) -> None:
    parameters = {name: value.clone() for name, value in client.layout.unflatten(theta).items()}
    before = _versions(parameters.values()), _versions(leaves(inputs))
    client.network(parameters, inputs, training=training, key=0)
    if _versions(leaves(inputs)) != before[1]:
        raise InputError(
            "The model should not write into its inputs: they are the problem's examples. Found that a forward pass "
            "changes them in place. Write `x = x - 1` for `x -= 1`, or begin with `x = x.clone()`."
        )
    for name, was, now in zip(parameters, before[0], _versions(parameters.values()), strict=True):
        if was != now:
            raise InputError(
                f"The model should not write into its parameters in a forward pass. Found that it changes '{name}' in "
                "place: evaluations would change the model. Compute with a changed copy; nn.Embedding and "
                "nn.EmbeddingBag do this with `max_norm`."
            )


def _check_repeats(client: Client, theta: Tensor, batch: Examples) -> None:
    """Reject a model or a loss that keeps something from pass to pass: a run would depend on what came before."""
    evaluated, trained, again, later = (_losses(client, theta, batch, mode) for mode in (False, True, True, False))
    for mode, first, second in (("training", trained, again), ("evaluation", evaluated, later)):
        if not same(first, second):
            raise InputError(
                "The model and the losses should depend on parameters, inputs and random draws alone. Found other "
                f"losses in a later {mode} pass: something is kept from pass to pass, such as a counter, an average, "
                "or a random generator of their own. Such a run could not be repeated or continued."
            )


def _losses(client: Client, theta: Tensor, batch: Examples, training: bool) -> Tensor:
    """The losses of a pass with draws that are the same every time."""
    with seeded(0):
        torch.default_generator.manual_seed(0)
        return client.example_losses(theta, batch, training=training, key=0)


def _versions(tensors: Iterable[Tensor]) -> list[int]:
    """How often each tensor was written."""
    return [tensor._version for tensor in tensors]


def _check_references(client: Client, theta: Tensor, inputs: Inputs) -> None:
    """With θ given, outputs should not depend on the values that the module itself has."""
    outputs = client.network(theta, inputs, training=False)
    with _has(client.network.module, client.layout.unflatten(theta)):
        others = client.network(theta, inputs, training=False)
    if not all(map(same, outputs, others)):
        raise InputError(
            "The model should read its parameters as attributes of their modules. Found outputs that depend on a "
            "reference of its own to a parameter, such as `self.weights = [self.layer.weight]`. Use "
            "`self.layer.weight` in forward."
        )


@contextmanager
def _has(module: nn.Module, values: Mapping[str, Tensor]) -> Iterator[None]:
    """In this context the module's own parameters have these values."""
    own = trained_entries(module)
    before = {name: value.clone() for name, value in own.items()}
    try:
        for name, parameter in own.items():
            parameter.copy_(values[name])
        yield
    finally:
        for name, parameter in own.items():
            parameter.copy_(before[name])


def check_buffers(module: nn.Module, before: Mapping[str, Tensor]) -> None:
    """Reject buffers that a forward pass changes: they are not parameters and would leak from client to client."""
    for name, value in module.named_buffers():
        if name not in before or not same(value, before[name]):
            raise InputError(
                f"The model's buffer '{name}' should not change. Found that a forward pass changes it: buffers are not "
                "averaged and would leak from client to client. Use a layer without such a state (no spectral norm, no "
                "running statistics)."
            )


def same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are equal; NaN equals NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())
