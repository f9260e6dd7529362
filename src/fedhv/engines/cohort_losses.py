"""The losses of many clients at one model: their examples are one batch, whatever the stack of models."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import Tensor

from fedhv.engines.graphs import Recorder
from fedhv.engines.portions import Portion
from fedhv.protocol.client import Client
from fedhv.support.transfers import HostCopies, to_device

EXAMPLES, COLUMNS = 256, 64
"""On a GPU the numbers of examples, and those of one client, are padded to multiples: few shapes are recorded."""


class CohortLosses:
    """Computes reports of cohorts.

    Args:
        client: The mathematics and the examples.
        chunk: The number of examples in one forward pass.
        autocast: The context of a forward pass.
        forget: Releases memory that recordings hold.
    """

    def __init__(
        self,
        client: Client,
        chunk: Portion,
        autocast: Callable[[], AbstractContextManager[object]],
        forget: Callable[[], None],
    ) -> None:
        self._client, self._chunk, self._autocast, self._forget = client, chunk, autocast, forget
        self._rows_of: tuple[Hashable, dict[str, Tensor]] | None = None
        self.copies = HostCopies()
        """Reports on their way to the host: the server reads them while clients train."""

    @torch.no_grad()
    def at(self, theta: Tensor, chosen: Sequence[np.ndarray], recorder: Recorder) -> Sequence[Tensor]:
        """The m mean losses of every client at θ; `chosen` are the training examples of each."""
        if self._client.device.type != "cpu":
            return self.recorded(theta, chosen, recorder)
        owner = torch.from_numpy(np.repeat(np.arange(len(chosen)), [len(c) for c in chosen]))
        index = torch.from_numpy(np.concatenate(chosen))

        def summed(chunk: int) -> Tensor:
            total = torch.zeros(len(chosen), self._client.layout.tasks, dtype=torch.float64)
            for start in range(0, len(index), chunk):
                losses = self.example_losses(theta, index[start : start + chunk])
                total.index_add_(0, owner[start : start + chunk], losses.double().T)
            return total

        sizes = torch.tensor([len(c) for c in chosen])
        return list((self._chunk(len(index), summed) / sizes[:, None]).float().unbind())

    @torch.no_grad()
    def recorded(self, theta: Tensor, chosen: Sequence[np.ndarray], recorder: Recorder) -> Sequence[Tensor]:
        """The same on a GPU, recorded. Losses are gathered by client and summed: sums by index are not repeatable."""
        sizes = np.array([len(c) for c in chosen])
        n = round_up(int(sizes.sum()), EXAMPLES)
        index = np.zeros(n, np.int64)
        index[: sizes.sum()] = np.concatenate(chosen)
        rows = self._rows(tuple(sizes.tolist()), n)

        def summed(chunk: int) -> Tensor:
            def run(theta: Tensor, index: Tensor, places: Tensor, sizes: Tensor) -> Tensor:
                parts = [self.example_losses(theta, part) for part in torch.split(index, chunk)]
                losses = torch.cat(parts, dim=1).double()
                padded = torch.cat([losses, losses.new_zeros(len(losses), 1)], dim=1)
                return (padded[:, places].sum(dim=2) / sizes).float().T.contiguous()

            inputs = {"theta": theta, "index": to_device(index, self._client.device), **rows}
            # One key for all numbers of examples that fit at once: `carefully` bounds the recordings of a key.
            return recorder.carefully(("losses", chunk if chunk < n else None), run, inputs).clone()

        found = self._chunk(n, summed, self._forget)
        self.copies.begin(found)
        return list(found.unbind())

    def example_losses(self, theta: Tensor, index: Tensor) -> Tensor:
        """The losses of training examples in evaluation mode, m × n."""
        batch = self._client.ready(self._client.train_examples[index])
        with self._autocast():
            return self._client.example_losses(theta, batch, training=False)

    def _rows(self, sizes: tuple[int, ...], n: int) -> dict[str, Tensor]:
        """Where every client's losses are among all n, and how many; the last tensors are kept, as sizes often repeat.

        Clients with fewer losses than the largest have n there, a column of zeros.
        """
        if self._rows_of is None or self._rows_of[0] != (sizes, n):
            counts = np.array(sizes)[:, None]
            column = np.arange(round_up(max(sizes), COLUMNS))
            places = np.where(column < counts, np.cumsum(counts)[:, None] - counts + column, n)
            tensors = {"places": places, "sizes": counts[:, 0]}
            self._rows_of = (sizes, n), {name: to_device(each, self._client.device) for name, each in tensors.items()}
        return self._rows_of[1]


def round_up(count: int, step: int) -> int:
    """The next multiple."""
    return -(-count // step) * step
