"""Local steps: gradients, additional terms, clipping and an update rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from fedhv.protocol.local.rules import Rate, RuleState, UpdateRule, clipped
from fedhv.protocol.local.terms import Term


def descend(
    theta: Tensor,
    gradients: Iterable[Callable[[Tensor], Tensor]],
    rate: Rate,
    rule: UpdateRule,
    terms: Sequence[Term] = (),
    *,
    clip: float | None = None,
    state: RuleState = (),
    active: Tensor | None = None,
) -> tuple[Tensor, RuleState]:
    """θ and the rule's state after one step for every gradient; `theta` is a vector or a stack of vectors.

    Args:
        theta: The starting point.
        gradients: The gradients of the steps, as functions of θ.
        rate: η_ℓ.
        rule: The update rule.
        terms: Terms that are added to the objective.
        clip: The largest norm of a gradient.
        state: The rule's state, if it continues from earlier steps.
        active: For a stack, steps × clients × 1: which clients make this step.
    """
    for i, gradient in enumerate(gradients):
        g = gradient(theta)
        for term in terms:
            g = g + term.gradient(theta)
        if clip is not None:
            g = clipped(g, clip)
        after, following = rule.step(theta, g, state, rate)
        if active is not None:
            before = state or tuple(torch.zeros_like(each) for each in following)
            following = tuple(torch.where(active[i], a, b) for a, b in zip(following, before, strict=True))
            after = torch.where(active[i], after, theta)
        theta, state = after, following
    return theta, state
