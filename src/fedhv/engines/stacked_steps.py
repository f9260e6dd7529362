"""The local steps of a stack as functions of tensors: what is mapped over clients, compiled and recorded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from fedhv.engines.compiled import Compiled
from fedhv.engines.formulations import mappable_calls
from fedhv.engines.trajectories import StackShape
from fedhv.engines.weight_order import WeightOrder
from fedhv.problem.problem import Examples
from fedhv.problem.trees import Inputs
from fedhv.protocol.client import Client
from fedhv.protocol.local import Term, descend


class StackedSteps:
    """Gradients and local steps of n clients at once: `vmap` of the client's objective.

    Args:
        client: The engine's client.
        precision: bf16 computes in autocast.
        stopping: Whether a signal waits; the next step then raises KeyboardInterrupt.
    """

    def __init__(self, client: Client, precision: str, stopping: Callable[[], bool]) -> None:
        self._client, self._precision, self._stopping = client, precision, stopping
        self.order = WeightOrder(client.layout, {})
        """The order of parameters within the local steps."""
        self.compiled = Compiled(self.gradients, stopping)

    def use(self, order: WeightOrder) -> None:
        """Compute steps in this order from now on. Compiled code contains the order that it was traced with."""
        self.order = order
        self.compiled.forget()

    def autocast(self) -> AbstractContextManager[object]:
        """The context of all forward passes."""
        if self._precision != "bf16":
            return nullcontext()
        return torch.autocast(self._client.device.type, torch.bfloat16, cache_enabled=False)

    def check_stopping(self) -> None:
        """Raise KeyboardInterrupt if a signal has arrived."""
        if self._stopping():
            raise KeyboardInterrupt

    def gradients(
        self,
        theta: Tensor,
        inputs: Inputs,
        targets: tuple[Tensor, ...],
        masks: dict[int, Tensor],
        weights: Tensor,
        shares: Tensor,
        key: Tensor,
    ) -> Tensor:
        """∇L of every client, n × d: no client's loss depends on another's θ, so one gradient of their sum is all.

        θ and gradient are in the order of the stack. Running statistics after the pass are in the place of their
        gradient.
        """
        theta = theta.detach().requires_grad_()
        mapped = torch.func.vmap(self._objective, randomness="different")
        with torch.enable_grad():
            losses, *statistics = mapped(theta, inputs, targets, masks, weights, shares, key)
            (gradients,) = torch.autograd.grad(losses.sum(), theta)
        if self._client.entries is not None and statistics:
            return self._client.entries.with_statistics(gradients, statistics[0])
        return gradients

    def _objective(
        self,
        theta: Tensor,
        inputs: Inputs,
        targets: tuple[Tensor, ...],
        masks: dict[int, Tensor],
        weights: Tensor,
        shares: Tensor,
        key: Tensor,
    ) -> tuple[Tensor, ...]:
        """The loss, and the running statistics after the pass where θ has any."""
        labelled = tuple(masks.get(i) for i in range(len(targets))) if masks else None
        with self.autocast(), mappable_calls(self._client.device):
            parameters = self.order.named(theta)
            loss = self._client.objective(parameters, Examples(inputs, targets, labelled), weights, shares, key)
        return (loss,) if self._client.entries is None else (loss, self._client.network.statistics())

    def batch(
        self, index: Tensor, shape: torch.Size, draws: Tensor | None = None
    ) -> tuple[Inputs, tuple[Tensor, ...], dict[int, Tensor]]:
        """Inputs, targets and masks of the minibatches with these examples; `shape` is clients × examples."""
        batch = self._client.ready(self._client.train_examples[index], draws, channels_last=False).fold(*shape)
        return batch.inputs, batch.targets, {i: mask for i, mask in enumerate(batch.labelled or ()) if mask is not None}

    def function(self, shape: StackShape, compiled: bool) -> Callable[..., Tensor]:
        """The computation of a stack of this shape as a function of its inputs (see `StackInputs`): Δθ, n × d.

        The optimiser's state is beside Δθ where the shape keeps it. Single trajectories give their gradients.
        """
        mapped = self.compiled if compiled else self.gradients

        def run(
            theta: Tensor,
            weights: Tensor,
            index: Tensor,
            shares: Tensor,
            key: Tensor,
            rate: Tensor,
            effects: Tensor | None = None,
            first: Tensor | None = None,
            active: Tensor | None = None,
            **more: Tensor,
        ) -> Tensor:
            def gradient(step: int) -> Callable[[Tensor], Tensor]:
                self.check_stopping()
                draws = None if effects is None else effects[step].flatten(0, 1)
                inputs, targets, masks = self.batch(index[step].flatten(), shares.shape, draws)
                return lambda theta: mapped(theta, inputs, targets, masks, weights, shares, key[step])

            steps = (gradient(step) for step in range(shape.minibatches))
            entries, order = self._client.entries, self.order
            start = order.enter(theta)
            if shape.single:
                gradients = order.leave(next(steps)(start))
                return gradients if entries is None else entries.without_statistics(gradients)
            known = [] if first is None else [self._client.known(order.enter(first))]
            more = {name: order.enter(value) for name, value in more.items()}
            state = tuple(more[f"state{i}"] for i in range(len(more)) if f"state{i}" in more)
            after, state = descend(
                start,
                (g for source in (known, steps) for g in source),
                rate,
                shape.rule,
                [_term(kind, i, more) for i, kind in enumerate(shape.terms)],
                clip=shape.clip,
                state=state,
                active=active,
                entries=entries,
            )
            found = [order.leave(each) for each in (after - start, *(state if shape.keeps else ()))]
            return torch.cat(found, dim=1) if shape.keeps else found[0]

        return run


def _term(kind: tuple[Any, ...], i: int, tensors: dict[str, Tensor]) -> Term:
    """A stacked term from its class, its numbers and its tensors in the inputs of a computation."""
    cls, numbers = kind
    prefix = f"term{i}_"
    own = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    term: Term = cls(**dict(numbers), **own)
    return term
