r"""Differential privacy of the reported losses: clip, and add Gaussian noise.

A client clips every one of its m mean losses to $[0, C]$ and adds $\mathcal N(0, \sigma^2)$ to each with
$\sigma = z\,C\sqrt m$. Two reports of one client differ by at most $C\sqrt m$ in Euclidean norm for any examples, so
$z$ is the noise multiplier of the Gaussian mechanism. Negative values are then set to 0, which costs no privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedhv.protocol.fields import tensor_fields, tensors_of
from fedhv.protocol.request import Reply
from fedhv.support.errors import InputError


@dataclass(frozen=True)
class ReportPrivacy:
    """Clips and noises the losses that a client reports.

    Attributes:
        clip: C, the largest reported loss; choose it a little above the largest plausible loss of a task.
        noise: z, the noise multiplier; 0 only clips and gives no guarantee.
    """

    clip: float
    noise: float

    def __post_init__(self) -> None:
        if not 0 < self.clip < math.inf:
            raise InputError(f"Report privacy: `clip` should be positive. Found `clip = {self.clip}`.")
        if not 0 <= self.noise < math.inf:
            raise InputError(f"Report privacy: `noise` should be 0 or more. Found `noise = {self.noise}`.")

    def sigma(self, tasks: int) -> float:
        """σ = zC√m, the standard deviation of the noise on every loss."""
        return self.noise * self.clip * math.sqrt(tasks)

    def protect_losses(self, losses: Tensor, rng: np.random.Generator) -> Tensor:
        """The report that may leave the client."""
        noise = rng.standard_normal(len(losses)) * self.sigma(len(losses))
        clipped = losses.double().nan_to_num(nan=self.clip).clamp(0, self.clip)  # NaN would pass the clamp
        return (clipped + torch.from_numpy(noise)).clamp(min=0).to(losses.dtype)

    def protect(self, reply: Reply, rng: np.random.Generator) -> Reply:
        """A reply with its report protected. Replies without a report are unchanged."""
        about, held = tensor_fields(type(reply)), tensors_of(reply)
        bounds = {name: about[name].bound for name in held}
        unit = replace(self, clip=1.0)
        protected: dict[str, Tensor] = {}
        for name in (name for name in held if bounds[name] == "report"):
            protected[name] = self.protect_losses(held[name], rng)
        for name in (name for name in held if bounds[name] == "score"):  # a release of its own, of numbers in [0, 1]
            protected[name] = unit.protect_losses(held[name], rng).clamp(max=1)
        # The number of labels reveals something about the examples; only whether there are any is sent.
        protected |= {name: (value > 0).to(value) for name, value in held.items() if bounds[name] == "count"}
        # There is no such mechanism for metrics: a protected client measures none.
        metrics = [name for name in held if bounds[name] == "metric"]
        protected |= {name: torch.zeros_like(held[name]) for name in (*metrics, "measured") if metrics and name in held}
        return replace(reply, **protected) if protected else reply
