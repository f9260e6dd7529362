r"""The exact (ε, δ) of Gaussian mechanisms without sampling.

A mechanism with noise multiplier $z$ has the trade-off curve of two unit Gaussians at distance $\mu = 1/z$; several of
them, with any $z$ each, are equivalent to one with $\mu = \sqrt{\sum 1/z_i^2}$. Its δ at ε is

$$ \delta(\varepsilon) = \Phi(\mu/2 - \varepsilon/\mu) - e^\varepsilon\,\Phi(-\mu/2 - \varepsilon/\mu). $$

This is no bound but the value itself, so no accountant (Rényi, privacy-loss distributions) gives less.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from fedhv.support.errors import InputError


def delta_of(epsilon: float, mu: float) -> float:
    """δ(ε) of the Gaussian mechanism at distance μ."""
    points = torch.tensor([mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu], dtype=torch.float64)
    first, second = torch.special.log_ndtr(points).tolist()
    return math.exp(first) - math.exp(min(0.0, epsilon + second))


def gaussian_epsilon(releases: Mapping[float, int], delta: float = 1e-5) -> float:
    """ε at δ of releases, counted by noise multiplier, for example `{1.0: 30}`; inf if one has no noise."""
    if not 0 < delta < 1:
        raise InputError(f"`delta` should be between 0 and 1. Found {delta}.")
    made = {z: count for z, count in releases.items() if count > 0}
    if not made:
        return 0.0
    if min(made) <= 0:
        return math.inf
    mu = math.sqrt(sum(count / z**2 for z, count in made.items()))
    if delta_of(0.0, mu) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while delta_of(high, mu) > delta:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle, mu) > delta else (low, middle)
    return high
