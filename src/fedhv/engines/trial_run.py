"""A check of model, losses and scores on two examples before a run starts, when nothing has been written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from fedhv.engines.side_effects import check_buffers, check_side_effects
from fedhv.problem.metrics import measure
from fedhv.problem.parameters import flatten
from fedhv.problem.problem import Examples, Problem
from fedhv.problem.tasks import check_score
from fedhv.problem.trees import describe
from fedhv.protocol.client import Client
from fedhv.support.errors import FedHVError, InputError


def check_model(problem: Problem) -> None:
    """Reject a model, loss or score that does not fit the problem, or whose runs cannot be repeated."""
    if problem.clients.elsewhere:
        return  # no client here has examples
    client = Client(problem)
    batch = _few(client, client.train_examples)
    theta = flatten(client.network.module)
    buffers = {name: value.clone() for name, value in client.network.module.named_buffers()}
    with torch.random.fork_rng(devices=[]):  # restores the generator
        _evaluates(client, theta, batch, "the problem's inputs")
        with _one_line("The sum of the losses should have a gradient at the model's parameters, in float32."):
            client.gradient(theta, batch, torch.full((client.layout.tasks,), 1 / client.layout.tasks), key=0)
        check_buffers(client.network.module, buffers)
        with _one_line("The model should take the problem's inputs in training mode too."):
            check_side_effects(client, theta, batch)
        if problem.test is not None:
            test = _few(client, problem.test)
            _measures(client, _evaluates(client, theta, test, "the test examples' inputs"))


def _few(client: Client, examples: Examples) -> Examples:
    """The first two examples as the model takes them; a copy."""
    return client.ready(examples[torch.arange(min(2, len(examples)))])


def _evaluates(client: Client, theta: Tensor, batch: Examples, what: str) -> list[Tensor]:
    """The outputs for a few examples, with which losses and scores are tried."""
    tasks, drawn = client.problem.tasks, torch.get_rng_state()
    with torch.no_grad():
        with _one_line(f"The model should take {what}, for two examples {describe(batch.inputs)}."):
            outputs = client.network(theta, batch.inputs, training=False)
        if not torch.equal(torch.get_rng_state(), drawn):
            raise InputError(
                "The model should draw random numbers only in training mode; otherwise reports and evaluations cannot "
                "be repeated. Found draws in evaluation mode. Use nn.Dropout or F.dropout(…, self.training)."
            )
        for task, output in zip(tasks, outputs, strict=True):
            if task.outputs is not None and tuple(output.shape) != (len(batch), task.outputs):
                raise InputError(
                    f"The model's output for task '{task.name}' should have shape {(len(batch), task.outputs)} for "
                    f"{len(batch)} examples. Found {tuple(output.shape)}."
                )
        with _one_line("The loss of every task should take the model's output and the targets."):
            client.example_losses(theta, batch, training=False)
        for task, output, target in zip(tasks, outputs, batch.targets, strict=True):
            with _one_line(f"The score of task '{task.name}' should take the model's output and the targets."):
                score = task.score(output, target)
                shape = tuple(score.shape)
            if shape != (len(batch),):
                raise InputError(
                    f"The score of task '{task.name}' should return one number per example ({len(batch)}). "
                    f"Found shape {shape}."
                )
            check_score(task, float(score.min()), float(score.max()))
    return outputs


def _measures(client: Client, outputs: list[Tensor]) -> None:
    """Metrics that the test targets do not allow are found now; the outputs are made up."""
    test = client.problem.test
    if test is None:
        return
    masks = test.labelled or (None,) * len(outputs)
    for task, output, target, mask in zip(client.problem.tasks, outputs, test.targets, masks, strict=True):
        if task.metrics:
            measure(task, torch.zeros(len(test), *output.shape[1:]), target, mask)


@contextmanager
def _one_line(expected: str) -> Iterator[None]:
    """Turn an exception in a user's model, loss or score into an input error; the exception is its cause."""
    try:
        yield
    except (FedHVError, MemoryError):
        raise
    except Exception as error:
        raise InputError(f"{expected} Found {type(error).__name__}: {error}") from error
