"""FSMGDA: every client trains every task alone; the server steps along the min-norm combination."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from fedhv.methods.base import Conversation, Method, State
from fedhv.methods.minnorm import min_norm_weights
from fedhv.methods.parts.absent import absent_tasks
from fedhv.protocol.requests import TaskUpdates
from fedhv.support.errors import diverged


@dataclass(frozen=True, kw_only=True)
class FSMGDA(Method):
    """Federated stochastic multi-gradient descent: m local trajectories, m uploads, MinNorm on the server."""

    name: ClassVar[str] = "fsmgda"

    def round(self, state: State) -> Conversation:
        """One round. MinNorm uses the shared parameters only; a head moves by the weight of its task."""
        replies = yield TaskUpdates(state.model)
        U = replies.mean_updates
        shared = replies.layout.shared(U).double()
        if not bool(shared.isfinite().all()):
            raise diverged("The clients' task updates are")
        # A task that no client of the cohort has is not a direction, and has weight 0 in this round.
        present = replies.present.nonzero().flatten()
        shared = shared[present.to(shared.device)]
        w = torch.zeros(len(U))
        w[present] = torch.from_numpy(min_norm_weights((shared @ shared.T).cpu().numpy())).float()
        # A task's update is zero on the other tasks' heads, so the weighted sum scales each head by its own weight.
        record = {"weights": w, **absent_tasks(replies)}
        return State(model=state.model + self.server_lr * (w.to(U) @ U), weights=w, record=record)
