"""Local steps: gradients, additional terms, clipping and an update rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from fedhv.protocol.local.entries import Entries
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
    entries: Entries | None = None,
) -> tuple[Tensor, RuleState]:
    """θ and the rule's state after one step for every gradient; `theta` may be a vector, or a stack of them.

    Args:
        theta: Where the steps begin.
        gradients: Functions of θ. Where θ has running statistics, they give the new ones in the place of a gradient.
        rate: η_ℓ.
        rule: The update rule.
        terms: Terms that are added to the objective.
        clip: The largest norm of a gradient.
        state: Of the rule, where it continues from earlier steps.
        active: Of a stack, steps × clients × 1: which clients still make this step.
        entries: Which entries of θ are no ordinary parameters; None where all are.
    """
    for i, gradient in enumerate(gradients):
        g = found = gradient(theta)
        if entries is not None:
            g = entries.without_statistics(found)
        for term in terms:
            g = g + (term.gradient(theta) if entries is None else entries.travelling(term.gradient(theta)))
        if clip is not None:
            g = clipped(g, clip)
        after, following = rule.step(theta, g, state, rate)
        if entries is not None:
            after = entries.with_statistics(after, found)
        if active is not None:
            before = state or tuple(torch.zeros_like(each) for each in following)
            following = tuple(torch.where(active[i], a, b) for a, b in zip(following, before, strict=True))
            after = torch.where(active[i], after, theta)
        theta, state = after, following
    return theta, state
