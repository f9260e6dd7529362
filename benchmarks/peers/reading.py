"""Common parts of the peers that use torch: the workload and the model. Needs only torch."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class Workload:
    images: torch.Tensor
    labels: torch.Tensor
    indices: np.ndarray
    offsets: np.ndarray
    numbers: SimpleNamespace

    @property
    def clients(self) -> int:
        return len(self.offsets) - 1

    def of(self, k: int) -> np.ndarray:
        return self.indices[self.offsets[k] : self.offsets[k + 1]]

    def normalised(self) -> torch.Tensor:
        """All images as the model's inputs, computed once, outside the measured rounds."""
        return self.normalised_of(slice(None))

    def normalised_of(self, which: Any) -> torch.Tensor:
        """Some images as the model's inputs."""
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (self.numbers.mean, self.numbers.std))
        return (self.images[which].float() / 255 - mean) / std

    def order(self, k: int, rng: np.random.Generator) -> np.ndarray:
        """The examples of K minibatches of client k: shuffled epochs, an incomplete last minibatch dropped."""
        own, b, steps = self.of(k), self.numbers.batch, self.numbers.steps
        per_epoch = len(own) // b
        epochs = -(-steps // per_epoch)
        return np.concatenate([rng.permutation(own)[: per_epoch * b] for _ in range(epochs)])[: steps * b]


def read(path: str) -> Workload:
    kept = np.load(path)
    numbers = SimpleNamespace(**json.loads(str(kept["numbers"])))
    return Workload(
        torch.from_numpy(kept["images"]), torch.from_numpy(kept["labels"]).long(), kept["indices"], kept["offsets"],
        numbers,
    )  # fmt: skip


def make_model(numbers: SimpleNamespace) -> torch.nn.Module:
    """The model, loaded from its file, because FedHV's dependencies need not be installed here."""
    spec = importlib.util.spec_from_file_location("models", numbers.models)
    module = importlib.util.module_from_spec(spec)
    sys.modules["models"] = module
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    model = getattr(module, numbers.model)()
    if not numbers.dropout:
        for layer in model.modules():
            if isinstance(layer, torch.nn.Dropout):
                layer.p = 0.0
    return model
