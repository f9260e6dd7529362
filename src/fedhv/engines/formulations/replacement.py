"""Replacement of layers that cannot be mapped over clients by formulations with the same parameters."""

from __future__ import annotations

import copy

from torch import nn

from fedhv.engines.formulations import cells, images, recurrent
from fedhv.engines.formulations.embedding import Embedding, EmbeddingBag, replaceable

LAYERS: dict[type[nn.Module], type[nn.Module]] = {
    nn.RNN: recurrent.RNN,
    nn.GRU: recurrent.GRU,
    nn.LSTM: recurrent.LSTM,
    nn.RNNCell: cells.RNNCell,
    nn.GRUCell: cells.GRUCell,
    nn.LSTMCell: cells.LSTMCell,
    nn.Embedding: Embedding,
    nn.EmbeddingBag: EmbeddingBag,
    nn.Conv1d: images.Conv1d,
    nn.Conv2d: images.Conv2d,
    nn.Conv3d: images.Conv3d,
    nn.AdaptiveAvgPool2d: images.AdaptiveAvgPool2d,
}
"""Subclasses are not replaced, because a user's class may compute something else."""


def with_mappable_layers(module: nn.Module) -> nn.Module:
    """A copy of a module whose layers are replaced by their formulations; the module itself if there are none."""
    if not any(_replaced(layer) for layer in module.modules()):
        return module
    module = copy.deepcopy(module)
    for layer in module.modules():
        if _replaced(layer):
            layer.__class__ = LAYERS[type(layer)]
    return module


def _replaced(layer: nn.Module) -> bool:
    match layer:
        case nn.Embedding():
            wanted = layer.padding_idx is not None
        case nn.EmbeddingBag():
            wanted = replaceable(layer)
        case nn.AdaptiveAvgPool2d():
            wanted = layer.output_size in (1, (1, 1))
        case _:
            wanted = True
    return wanted and type(layer) in LAYERS
