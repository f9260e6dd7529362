r"""Everything that the theory asks about one model, on all examples of all clients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedhv.protocol.client import CHUNK, Client
from fedhv.protocol.cohort import ReportBudget
from fedhv.theory.reports import report_factor, report_size


@dataclass(frozen=True)
class Population:
    r"""The losses of all clients at one model.

    Attributes:
        client_losses: $f_i^{(k)}(\theta)$, N × m.
        dispersions: $v_{i,k}(\theta)$, N × m.
        sizes: $n_k$.
    """

    client_losses: np.ndarray
    dispersions: np.ndarray
    sizes: np.ndarray

    @property
    def losses(self) -> np.ndarray:
        r"""$F(\theta)$, the mean over clients, unweighted."""
        return np.asarray(self.client_losses.mean(axis=0))

    @property
    def loss_spread(self) -> np.ndarray:
        r"""$\omega_i(\theta)$."""
        return np.asarray(self.client_losses.std(axis=0))

    def report_noise(self, report: ReportBudget, batch_size: int) -> np.ndarray:
        r"""$\tau_i(\theta)$ under a report budget."""
        q = 0 if report == "all" else report
        factors = np.array([report_factor(int(n), report_size(int(n), q, batch_size)) for n in self.sizes])
        return np.asarray(np.sqrt((factors[:, None] * self.dispersions).mean(axis=0)))


class Examiner:
    """Looks at models through the clients' examples, clean and in evaluation mode, as reports do."""

    def __init__(self, client: Client) -> None:
        self.client = client
        clients = client.problem.clients
        self._sizes = clients.sizes
        self._index = torch.from_numpy(clients.indices).to(client.device)
        owner = np.repeat(np.arange(len(self._sizes)), self._sizes)
        self._owner = torch.from_numpy(owner).to(client.device)
        shares = 1 / (len(self._sizes) * self._sizes[owner])
        self._shares = torch.from_numpy(shares.astype(np.float32)).to(client.device)

    def population(self, theta: Tensor) -> Population:
        """One pass over all clients' examples."""
        m, n = self.client.layout.tasks, len(self._sizes)
        total, squares = torch.zeros(2, n, m, dtype=torch.float64, device=self.client.device)
        with torch.no_grad():
            for part in self._parts():
                losses = self._losses(theta, part).double().T
                total.index_add_(0, self._owner[part], losses)
                squares.index_add_(0, self._owner[part], losses**2)
        size = self._sizes[:, None]
        mean = total.cpu().numpy() / size
        # A difference of two means: rounding may leave it a little below zero.
        dispersion = np.maximum(squares.cpu().numpy() / size - mean**2, 0.0)
        return Population(mean, dispersion, self._sizes)

    def task_gradients(self, theta: Tensor) -> Tensor:
        r"""$\nabla f_i(\theta)$, m × d, in double precision, with the full data of all clients."""
        m = self.client.layout.tasks
        total = torch.zeros(m, theta.numel(), dtype=torch.float64, device=theta.device)
        for part in self._parts():
            at = theta.detach().clone().requires_grad_(True)
            f = self._losses(at, part) @ self._shares[part]
            for i in range(m):
                total[i] += torch.autograd.grad(f[i], at, retain_graph=i + 1 < m)[0].double()
        return total.cpu()

    def _losses(self, theta: Tensor, part: slice) -> Tensor:
        batch = self.client.ready(self.client.train_examples[self._index[part]])
        return self.client.example_losses(theta, batch, training=False)

    def _parts(self) -> list[slice]:
        return [slice(start, start + CHUNK) for start in range(0, len(self._index), CHUNK)]
