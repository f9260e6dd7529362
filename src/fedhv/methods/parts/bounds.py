"""Bounds on the weights: a cap, and smoothing over rounds."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from fedhv.methods.base import Conversation
from fedhv.methods.weights import capped_weights


def bounded(conversation: Conversation, before: Tensor, cap: float | None, smoothing: float) -> Conversation:
    r"""The same conversation with capped and smoothed weights, in single precision.

    $w' = (1 - \beta)\min\{\lambda w, c\} + \beta w^t$; smoothing keeps weights below the cap that were there before.

    Args:
        conversation: The round.
        before: $w^t$, the weights that the round used.
        cap: $c$, or None for no cap.
        smoothing: $\beta$.
    """
    after = yield from conversation
    weights = after.weights
    if cap is not None:
        weights = capped_weights(weights, cap)
    if smoothing:
        weights = (1 - smoothing) * weights + smoothing * before
    return replace(after, weights=weights.float())
