"""Entries of θ that a local step treats in their own way: running statistics, and what stays with the client."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedhv.problem.parameters import Layout


@dataclass(frozen=True)
class Entries:
    """Masks over θ, d truth values each, and where the first is true.

    Attributes:
        statistics: Have no gradient: a step sets them to what the training pass found.
        resident: Stay with the client: terms of the objective that refer to the received model leave them out.
        places: The positions of `statistics`. A CUDA graph cannot record a search for them in every step.
    """

    statistics: Tensor
    resident: Tensor
    places: Tensor

    @classmethod
    def of(cls, layout: Layout, device: torch.device) -> Entries | None:
        """Those of a model; None where all entries are ordinary parameters."""
        if not any(layout.statistics):
            return None
        statistics = layout.statistic_entries
        places = statistics.nonzero().flatten()
        return cls(statistics.to(device), layout.resident_entries.to(device), places.to(device))

    def without_statistics(self, gradient: Tensor) -> Tensor:
        """A gradient with zeros in the place of statistics."""
        return gradient.masked_fill(self.statistics, 0)

    def travelling(self, gradient: Tensor) -> Tensor:
        """A term's gradient on the parameters that travel."""
        return gradient.masked_fill(self.statistics | self.resident, 0)

    def with_statistics(self, gradient: Tensor, statistics: Tensor) -> Tensor:
        """The given statistics in their place: a vector, or a stack, of those alone or of all entries."""
        if statistics.shape[-1] == gradient.shape[-1]:
            return torch.where(self.statistics, statistics, gradient)
        return gradient.index_copy(-1, self.places, statistics)
