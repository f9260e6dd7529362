"""What every peer needs: the workload, the model, and a word with whoever lets it play. Depends on torch alone."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

SIGN = "@@"


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
        """All images as the model takes them, once and for all: nobody pays for it in a round."""
        return self.normalised_of(slice(None))

    def normalised_of(self, which: Any) -> torch.Tensor:
        """Some images as the model takes them."""
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
    """The one definition of the model, loaded from its file: the other packages of FedHV need not be there."""
    spec = importlib.util.spec_from_file_location("models", numbers.models)
    module = importlib.util.module_from_spec(spec)
    sys.modules["models"] = module
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    return getattr(module, numbers.model)()


def say(**what: Any) -> None:
    print(SIGN + json.dumps(what), flush=True)


def turns() -> Iterator[None]:
    """Once for every round that this peer may play; tells how long it took when the next one is asked for."""
    say(script=Path(sys.argv[0]).name)
    for _ in sys.stdin:
        began = time.perf_counter()
        yield
        say(inner=time.perf_counter() - began)
