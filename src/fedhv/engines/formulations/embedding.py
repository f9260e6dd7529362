"""`nn.Embedding` with padding and `nn.EmbeddingBag`, for which torch's own operators are wrong or slow under `vmap`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedhv.engines.formulations.mapped import is_mapped


class Embedding(nn.Embedding):
    """`nn.Embedding` whose entry `padding_idx` gets no gradient from any client.

    Under `vmap` torch excludes the entry of the first client only.
    """

    def forward(self, input: Tensor) -> Tensor:
        """The embeddings."""
        if self.padding_idx is None or self.max_norm is not None or not is_mapped(input, self.weight):
            return super().forward(input)
        rows = F.embedding(input, self.weight, None, None, self.norm_type, self.scale_grad_by_freq, self.sparse)
        return torch.where((input == self.padding_idx)[..., None], rows.detach(), rows)


class EmbeddingBag(nn.EmbeddingBag):
    """`nn.EmbeddingBag` of bags of equal size; bags that come with offsets are left to torch."""

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        """The sum or mean of every bag's embeddings."""
        if input.dim() != 2 or offsets is not None or not is_mapped(input, self.weight, per_sample_weights):
            return super().forward(input, offsets, per_sample_weights)
        rows = F.embedding(input, self.weight)
        # Padding counts neither in a sum nor in a mean, and gets no gradient.
        counts = torch.ones_like(input, dtype=torch.bool) if self.padding_idx is None else input != self.padding_idx
        shares = counts.to(rows.dtype)
        if per_sample_weights is not None:
            shares = shares * per_sample_weights
        elif self.mode == "mean":
            shares = shares / counts.sum(dim=1, keepdim=True).clamp(min=1)
        return (rows * shares[..., None]).sum(dim=1)


def replaceable(layer: nn.EmbeddingBag) -> bool:
    """Whether the formulation gives the same result as the layer.

    `max_norm` writes into the parameter. If an entry is in a bag twice, the gradient of a maximum is ambiguous, and
    torch uses two conventions.
    """
    return layer.max_norm is None and not layer.scale_grad_by_freq and not layer.sparse and layer.mode != "max"
