r"""Measurements at one model, on all examples of all clients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedhv.protocol.client import CHUNK, Client
from fedhv.protocol.cohort import ReportBudget
from fedhv.theory.reports import report_factor, report_size


@dataclass(frozen=True)
class PopulationLosses:
    r"""The losses of all clients at one model.

    Attributes:
        client_losses: $f_i^{(k)}(\theta)$, N × m; NaN if a client has no label of a task.
        dispersions: $v_{i,k}(\theta)$, N × m.
        sizes: $n_k$.
        labels: $n_{ki}$, N × m; None if every example has every label.
    """

    client_losses: np.ndarray
    dispersions: np.ndarray
    sizes: np.ndarray
    labels: np.ndarray | None = None

    @property
    def losses(self) -> np.ndarray:
        r"""$F(\theta)$, the mean over the clients that have a task, unweighted."""
        return np.asarray(self._mean(self.client_losses))

    @property
    def loss_spread(self) -> np.ndarray:
        r"""$\omega_i(\theta)$."""
        if self.labels is None:
            return np.asarray(self.client_losses.std(axis=0))
        return np.asarray(np.nanstd(self.client_losses, axis=0))

    def report_noise(self, report: ReportBudget, batch_size: int) -> np.ndarray:
        r"""$\tau_i(\theta)$ for a report budget. With missing labels, a report contains its share of them."""
        q = 0 if report == "all" else report
        drawn = np.array([report_size(int(n), q, batch_size) for n in self.sizes])
        if self.labels is None:
            factors = np.array([report_factor(int(n), int(d)) for n, d in zip(self.sizes, drawn, strict=True)])
            return np.asarray(np.sqrt((factors[:, None] * self.dispersions).mean(axis=0)))
        shares = drawn / self.sizes
        some = np.maximum(self.labels, 1)
        seen = np.maximum(np.rint(some * shares[:, None]), 1).astype(int)
        factors = np.vectorize(report_factor, otypes=[float])(some, seen)
        return np.asarray(np.sqrt(self._mean(factors * self.dispersions)))

    def _mean(self, values: np.ndarray) -> np.ndarray:
        """The mean over the clients that have a task."""
        return np.asarray(values.mean(axis=0) if self.labels is None else np.nanmean(values, axis=0))


class Examiner:
    """Measures models on the clients' examples, in evaluation mode and without augmentation, like reports."""

    def __init__(self, client: Client) -> None:
        self.client = client
        clients = client.problem.clients
        self._sizes = clients.sizes
        self._index = torch.from_numpy(clients.indices).to(client.device)
        owner = np.repeat(np.arange(len(self._sizes)), self._sizes)
        self._owner = torch.from_numpy(owner).to(client.device)
        shares = 1 / (len(self._sizes) * self._sizes[owner])
        self._labels: np.ndarray | None = None
        if client.problem.train.labelled is not None:
            self._labels = np.array([client.holding(k).of(client.layout.tasks) for k in range(len(self._sizes))])
            there = (self._labels > 0).sum(axis=0)
            shares = 1 / (there * np.maximum(self._labels, 1))[owner]
        self._shares = torch.from_numpy(shares.astype(np.float32)).to(client.device)

    def population(self, theta: Tensor) -> PopulationLosses:
        """One pass over all clients' examples."""
        m, n = self.client.layout.tasks, len(self._sizes)
        total, squares = torch.zeros(2, n, m, dtype=torch.float64, device=self.client.device)
        with torch.no_grad():
            for part in self._parts():
                losses = self._losses(theta, part).double().T
                total.index_add_(0, self._owner[part], losses)
                squares.index_add_(0, self._owner[part], losses**2)
        size = self._sizes[:, None] if self._labels is None else np.where(self._labels > 0, self._labels, np.nan)
        mean = total.cpu().numpy() / size
        # Rounding may make a difference of two means slightly negative.
        dispersion = np.maximum(squares.cpu().numpy() / size - mean**2, 0.0)
        return PopulationLosses(mean, dispersion, self._sizes, self._labels)

    def task_gradients(self, theta: Tensor) -> Tensor:
        r"""$\nabla f_i(\theta)$, m × d, in double precision, with the full data of all clients."""
        m = self.client.layout.tasks
        total = torch.zeros(m, theta.numel(), dtype=torch.float64, device=theta.device)
        for part in self._parts():
            at = theta.detach().clone().requires_grad_(True)
            losses = self._losses(at, part)
            f = losses @ self._shares[part] if self._labels is None else (losses * self._shares[part].T).sum(dim=1)
            for i in range(m):
                total[i] += torch.autograd.grad(f[i], at, retain_graph=i + 1 < m)[0].double()
        return total.cpu()

    def _losses(self, theta: Tensor, part: slice) -> Tensor:
        batch = self.client.ready(self.client.train_examples[self._index[part]])
        return self.client.example_losses(theta, batch, training=False)

    def _parts(self) -> list[slice]:
        return [slice(start, start + CHUNK) for start in range(0, len(self._index), CHUNK)]
