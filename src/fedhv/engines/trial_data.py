"""A check of how examples become the model's inputs: collation, preparation and augmentation, on a few examples.

Engines prepare minibatches of several steps or clients together, and read test examples again in every evaluation. So
an example's inputs should depend on that example alone, and examples should stay as they are.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedhv.engines.side_effects import same
from fedhv.problem.generators import watch_generators
from fedhv.problem.problem import Examples
from fedhv.problem.trees import Inputs, describe, leaves, tree_map
from fedhv.protocol.client import Client
from fedhv.support.errors import InputError, one_line

MANY = 8
"""The number of examples on which augmentation is tried: a random order of fewer is easily their own."""


def prepared(client: Client, examples: Examples, count: int = 2) -> Examples:
    """The first examples as the model takes them, after a check of `collate` and `prepare`."""
    first = torch.arange(min(count, len(examples)))
    given = examples[first]
    before = tree_map(torch.clone, given.inputs)
    if not _equal(examples[first].inputs, before):
        raise InputError(
            "`collate` should give the same inputs for the same examples every time. Found others in a second call: "
            "random changes belong into the problem's `augment`."
        )
    prepare = client.problem.prepare
    if prepare is None:
        return client.ready(given)
    drew = watch_generators()
    with one_line(f"`prepare` should take the stored inputs, {describe(before)}."):
        made = prepare(given.inputs)
    _check_form("`prepare`", made, len(first))
    if not _equal(given.inputs, before):
        raise InputError(
            "`prepare` should not write into the inputs: they are the problem's examples. Found that it changes them "
            "in place. Write `x = x / 255` for `x /= 255`."
        )
    with one_line("`prepare` should take a single example too."):
        again, alone = prepare(given.inputs), prepare(given[:1].inputs)
    if drew() or not _equal(made, again):
        raise InputError(
            "`prepare` should give the same inputs for the same examples every time. Found others in a second call, or "
            "random draws: random changes belong into the problem's `augment`."
        )
    if not _near(alone, made, 0):
        raise InputError(
            "`prepare` should treat every example by itself. Found that the first one's inputs depend on the second: "
            "minibatches are prepared together in ways that differ between engines. Use fixed numbers, such as a mean "
            "over the training examples."
        )
    return client.ready(given)


def check_augmentation(client: Client) -> None:
    """Reject an augmentation whose effect on an example does not follow from that example and its draws."""
    augment = client.problem.augment
    if augment is None:
        return
    few = client.train_examples[torch.arange(min(MANY, len(client.train_examples)))]
    inputs = few.inputs if client.problem.prepare is None else client.problem.prepare(few.inputs)
    n = len(leaves(inputs)[0])
    with one_line(f"`augment.draw` should return draws for 1 step of {n} examples."):
        draws = augment.draw(np.random.Generator(np.random.PCG64(0)), 1, n)
    if not isinstance(draws, np.ndarray) or draws.shape[:2] != (1, n):
        found = draws.shape if isinstance(draws, np.ndarray) else type(draws).__name__
        raise InputError(
            f"`augment.draw` should return an array of shape (steps, batch, …), here (1, {n}, …). Found {found}."
        )
    own = torch.from_numpy(draws[0])

    def applied(some: slice) -> Inputs:
        # An augmentation may write into what it is given: minibatches are copies.
        return augment.apply(tree_map(lambda part: part[some].clone(), inputs), own[some])

    drew = watch_generators()
    with one_line(f"`augment.apply` should take inputs, {describe(inputs)}, and draws, {describe(own)}."):
        made, again = applied(slice(None)), applied(slice(None))
        alone = [applied(slice(j, j + 1)) for j in range(n)]
    _check_form("`augment.apply`", made, n)
    if drew() or not _equal(made, again):
        raise InputError(
            "`augment.apply` should depend on inputs and draws alone. Found other results in a second call, or random "
            "draws: make them in `augment.draw`, from its generator."
        )
    if not all(_near(each, made, j) for j, each in enumerate(alone)):
        raise InputError(
            "`augment.apply` should treat every example by itself. Found that one's result depends on the others: "
            "engines apply it to several minibatches together."
        )


def _check_form(what: str, made: Inputs, n: int) -> None:
    parts = leaves(made)
    if not parts or not all(isinstance(part, Tensor) and part.ndim and len(part) == n for part in parts):
        found = ", ".join(str(tuple(part.shape)) if isinstance(part, Tensor) else type(part).__name__ for part in parts)
        raise InputError(
            f"{what} should return a tensor, or a tuple or dict of tensors, with an entry for each of {n} examples. "
            f"Found {found or 'nothing'}."
        )


def _equal(one: Inputs, other: Inputs) -> bool:
    pairs = zip(leaves(one), leaves(other), strict=True)
    return all(same(a, b) for a, b in pairs)


def _near(alone: Inputs, together: Inputs, j: int) -> bool:
    """Whether an example's inputs are its own in a minibatch, up to rounding. Of other shapes they may be trimmed."""
    pairs = [(a, b[j : j + 1]) for a, b in zip(leaves(alone), leaves(together), strict=True)]
    return all(a.shape != b.shape or _distance(a, b) <= 1e-2 for a, b in pairs)


def _distance(a: Tensor, b: Tensor) -> float:
    a, b = a.double(), b.double()
    return float((a - b).norm() / max(float(a.norm() + b.norm()), 1e-30))
