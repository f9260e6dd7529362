"""A check of model, losses and scores on two examples before a run starts, when nothing has been written."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from fedhv.engines.side_effects import check_buffers, check_side_effects, same
from fedhv.engines.trial_data import check_augmentation, prepared
from fedhv.problem.generators import seeded, watch_generators
from fedhv.problem.labels import example_losses
from fedhv.problem.metrics import measure
from fedhv.problem.parameters import flatten
from fedhv.problem.problem import Examples, Problem
from fedhv.problem.tasks import PerExample, Task, check_score
from fedhv.problem.trees import describe
from fedhv.protocol.client import Client
from fedhv.support.errors import InputError, one_line


def check_model(problem: Problem) -> None:
    """Reject a model, loss or score that does not fit the problem, or whose runs cannot be repeated."""
    if problem.clients.elsewhere:
        return  # no client here has examples
    _check_no_training(problem.tasks)
    client = Client(problem)
    theta = flatten(client.network.module)
    buffers = {name: value.clone() for name, value in client.network.module.named_buffers()}
    with torch.random.fork_rng(devices=[]), seeded(0):  # restores the generators
        batch = prepared(client, client.train_examples)
        check_augmentation(client)
        _evaluates(client, theta, batch, "the problem's inputs")
        with one_line("The sum of the losses should have a gradient at the model's parameters, in float32."):
            client.gradient(theta, batch, torch.full((client.layout.tasks,), 1 / client.layout.tasks), key=0)
        smallest = int(problem.clients.sizes.argmin())
        if problem.clients.sizes[smallest] == 1:  # found now, not in the first round that has this client
            with one_line(f"The model should train on one example, since client {smallest} has no more."):
                alone = client.batch(np.zeros(1, np.int64), smallest)
                client.gradient(theta, alone, torch.full((client.layout.tasks,), 1 / client.layout.tasks), key=0)
        check_buffers(client.network.module, buffers)
        with one_line("The model should take the problem's inputs in training mode too."):
            check_side_effects(client, theta, batch)
        check_test(client, theta)


def check_test(client: Client, theta: Tensor) -> None:
    """Reject test examples that the model, a loss, a score or a metric does not take."""
    test = client.problem.test
    if test is None:
        return
    few = prepared(client, test)
    _measures(client, _evaluates(client, theta, few, "the test examples' inputs"), test)


def _check_no_training(tasks: Sequence[Task]) -> None:
    """Reject a loss with parameters of its own that ask for gradients: no client would train them."""
    for task in tasks:
        if isinstance(task.loss, nn.Module) and any(each.requires_grad for each in task.loss.parameters()):
            raise InputError(
                f"The loss of task '{task.name}' should have no parameters to train: only the model's are trained. Put "
                "them into the model, or fix them by `loss.requires_grad_(False)`."
            )


def _evaluates(client: Client, theta: Tensor, batch: Examples, what: str) -> list[Tensor]:
    """The outputs for a few examples, with which losses and scores are tried."""
    tasks, drew = client.problem.tasks, watch_generators()
    with torch.no_grad():
        with one_line(f"The model should take {what}, for two examples {describe(batch.inputs)}."):
            outputs = client.network(theta, batch.inputs, training=False)
        if drew():
            raise InputError(
                "The model should draw random numbers only in training mode; otherwise reports and evaluations cannot "
                "be repeated. Found draws in evaluation mode. Use nn.Dropout or F.dropout(…, self.training)."
            )
        for task, output in zip(tasks, outputs, strict=True):
            if not isinstance(output, Tensor):
                raise InputError(
                    f"The model's output for task '{task.name}' should be a tensor. Found {type(output).__name__}; "
                    "join its parts, as torch.cat does."
                )
            if task.outputs is not None and tuple(output.shape) != (len(batch), task.outputs):
                raise InputError(
                    f"The model's output for task '{task.name}' should have shape {(len(batch), task.outputs)} for "
                    f"{len(batch)} examples. Found {tuple(output.shape)}."
                )
        given = *outputs, *batch.targets
        before, drew = [each.clone() for each in given], watch_generators()
        with one_line("The loss of every task should take the model's output and the targets."):
            client.example_losses(theta, batch, training=False)
            _check_unchanged(tasks, given, before)
            example_losses(tasks, outputs, batch)
            _check_unchanged(tasks, given, before)
        for task, output, target in zip(tasks, outputs, batch.targets, strict=True):
            with one_line(f"The score of task '{task.name}' should take the model's output and the targets."):
                score = task.score(output, target)
                shape = tuple(score.shape)
            if shape != (len(batch),):
                raise InputError(
                    f"The score of task '{task.name}' should return one number per example ({len(batch)}). "
                    f"Found shape {shape}."
                )
            check_score(task, float(score.min()), float(score.max()))
        if drew():
            raise InputError(
                "Losses and scores should draw no random numbers: reports and evaluations could not be repeated. Found "
                "draws. Draw in the model, in training mode."
            )
        _check_unchanged(tasks, given, before)
        for task, output, target in zip(tasks, outputs, batch.targets, strict=True):
            for what, function in (("loss", task.loss), ("score", task.score)):
                _check_alone(f"The {what} of task '{task.name}'", function, output, target)
    return outputs


def _check_alone(what: str, function: PerExample, output: Tensor, target: Tensor) -> None:
    """Reject a loss or score of an example that depends on the other examples of the minibatch."""
    twice = torch.zeros(len(target), dtype=torch.int64)
    both, alone = function(output, target), function(output[twice], target[twice])
    if not torch.allclose(both[0].double(), alone[0].double(), rtol=1e-3, atol=1e-5, equal_nan=True):
        raise InputError(
            f"{what} should treat every example by itself. Found that the first one's depends on the second. Are "
            f"outputs and targets broadcast? Their shapes are {tuple(output.shape)} and {tuple(target.shape)}."
        )


def _check_unchanged(tasks: tuple[Task, ...], now: Sequence[Tensor], before: Sequence[Tensor]) -> None:
    """Reject a loss or score that writes into what it is given: scores see the outputs after the losses."""
    for i, (given, kept) in enumerate(zip(now, before, strict=True)):
        if not same(given, kept):
            what = "outputs" if i < len(tasks) else "targets"
            raise InputError(
                f"Losses and scores should not write into outputs and targets. Found that the {what} of task "
                f"'{tasks[i % len(tasks)].name}' are changed in place. Write `x = x + 1` for `x += 1`."
            )


def _measures(client: Client, outputs: list[Tensor], test: Examples) -> None:
    """Metrics that the test targets do not allow are found now; the outputs are made up."""
    masks = test.labelled or (None,) * len(outputs)
    for task, output, target, mask in zip(client.problem.tasks, outputs, test.targets, masks, strict=True):
        if task.metrics:
            measure(task, torch.zeros(len(test), *output.shape[1:]), target, mask)
