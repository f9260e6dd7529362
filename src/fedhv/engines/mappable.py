"""Whether a model can be mapped over a stack of clients: found out by trying it on two clients of two examples each."""

from __future__ import annotations

import torch

from fedhv.problem.parameters import flatten
from fedhv.problem.problem import Examples, Problem
from fedhv.problem.trees import Inputs, tree_map
from fedhv.protocol.client import Client

CLIENTS, EXAMPLES = 2, 2
LONGEST = 160
"""Characters of a reason: torch explains itself at length."""


def why_not_mappable(problem: Problem) -> str | None:
    """Why `vmap` cannot map a problem's model and losses over clients; None where it can.

    Typical reasons are a branch that looks at the data, `.item()`, a buffer that is written in place, or an
    operation that torch cannot batch. What is tried is what the stacked engine does, on a CPU, with a stack as small
    as stacks can be; a random draw leaves no trace.
    """
    client = Client(problem)
    count = CLIENTS * EXAMPLES
    positions = torch.arange(count) % len(problem.train)
    try:
        with torch.random.fork_rng(devices=[]):
            batch = client.ready(client.train_examples[positions], channels_last=False)
            stack = batch.fold(CLIENTS, EXAMPLES)
            theta = flatten(client.network.module).expand(CLIENTS, -1)
            weights = torch.full((CLIENTS, client.layout.tasks), 1 / client.layout.tasks)
            shares = torch.full((CLIENTS, EXAMPLES), 1 / EXAMPLES)

            def objective(theta: torch.Tensor, inputs: Inputs, targets: tuple[torch.Tensor, ...],
                          weights: torch.Tensor, shares: torch.Tensor, key: torch.Tensor) -> torch.Tensor:  # fmt: skip
                return client.objective(theta, Examples(inputs, targets), weights, shares, key)

            theta = theta.clone().requires_grad_()
            mapped = torch.func.vmap(objective, randomness="different")
            key = torch.arange(CLIENTS)
            torch.autograd.grad(mapped(theta, stack.inputs, stack.targets, weights, shares, key).sum(), theta)
            if _mixes(client, theta[0].detach(), batch.inputs):
                return "its examples depend on one another within a minibatch"
    except Exception as error:  # whatever a user's model may raise under vmap is the answer
        return _reason(error)
    return None


def _mixes(client: Client, theta: torch.Tensor, inputs: Inputs) -> bool:
    """Whether an example's outputs depend on the others beside it: stacks fill up minibatches, and mix clients."""
    alone = tree_map(lambda part: part[:1].expand_as(part).contiguous(), inputs)
    with torch.no_grad():
        pairs = zip(*(client.network(theta, some, training=False) for some in (inputs, alone)), strict=True)
        return any(bool((a[0] - b[0]).norm() > 1e-2 * (a[0].norm() + b[0].norm()) / 2) for a, b in pairs)


def _reason(error: Exception) -> str:
    """The first sentence of what torch says, in one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    sentence = text.split(". ")[0].rstrip(".")
    return sentence if len(sentence) <= LONGEST else f"{sentence[: LONGEST - 1].rstrip()}…"
