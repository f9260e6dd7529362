"""FedCMOO: weights by projected descent on a Gram matrix that is estimated from compressed task gradients."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedhv.methods.base import Conversation, Method, State
from fedhv.methods.parts.absent import absent_tasks
from fedhv.problem.random import Purpose
from fedhv.protocol.compression import Compressed, compress
from fedhv.protocol.requests import (
    ContinueTraining,
    GramTermReplies,
    GramTerms,
    TaskGradients,
)
from fedhv.support.errors import InputError, diverged


@dataclass(frozen=True, kw_only=True)
class FedCMOO(Method):
    """Communication-efficient federated multi-objective optimisation with the randomised-SVD Gram estimate.

    A round has three exchanges. The first two compute the weights: clients send compressed task gradients, receive
    their compressed sum and return the terms that complete the Gram estimate. The third trains with these weights: the
    first local step applies the gradients of the first exchange, and K − 1 steps follow.

    Attributes:
        extra_upload: The size of the compressed gradients in units of the shared parameters.
        iterations: Projected-gradient steps on the weights, from the previous round's weights.
        step_size: Their step size.
    """

    name: ClassVar[str] = "fedcmoo"

    extra_upload: float = 1.0
    iterations: int = 1000
    step_size: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("extra_upload", "iterations", "step_size"):
            if not 0 < getattr(self, name) < float("inf"):
                raise InputError(f"Method 'fedcmoo': `{name}` should be positive. Found {getattr(self, name)}.")
        if not isinstance(self.iterations, int):
            raise InputError(f"Method 'fedcmoo': `iterations` should be a whole number. Found {self.iterations}.")

    def round(self, state: State) -> Conversation:
        """One round in three exchanges."""
        gradients = yield TaskGradients(state.model, self.extra_upload)
        total, norms = _sum_and_norms(gradients.compressed)
        if not np.isfinite(norms).all():
            raise diverged("The task gradients are")
        S = compress(total, self.extra_upload, gradients.cohort.stream(Purpose.COMPRESSION, part=1))
        terms = yield GramTerms.of(S, self.extra_upload)
        # A client that was lost after it sent its gradients is in S, but not in the sums of the others.
        there = set(terms.cohort.clients)
        left = [norm for k, norm in zip(gradients.cohort.clients, norms, strict=True) if k in there]
        gram = gram_estimate(sum(norm**2 for norm in left), terms)
        found = self._weights(gram, terms, state.weights.double().numpy())
        # False Gram terms of one client may give weights outside the simplex, even NaN. Training with them would
        # spoil every client's update, so the round keeps the previous weights.
        kept = not in_simplex(found)
        w = state.weights if kept else torch.from_numpy(found).float()
        replies = yield ContinueTraining(state.model, w)
        record = {"weights": w, **absent_tasks(terms)} | ({"weights_kept": True} if kept else {})
        model = state.model + self.server_lr * replies.mean_update
        return State(model=model, weights=_start_of_next(w, state.weights, terms.present), record=record)

    def _weights(self, gram: np.ndarray, terms: GramTermReplies, before: np.ndarray) -> np.ndarray:
        """The weights of the tasks that the cohort has.

        A task's gradient is the mean over the clients that have it, which all count alike here.
        """
        if terms.shares is None:
            return self.descend_weights(gram, before)
        present = terms.present.numpy()
        scale = len(terms.cohort) / np.maximum(_clients(terms), 1)
        gram = (gram * np.outer(scale, scale))[np.ix_(present, present)]
        start = before[present]
        found = np.zeros(len(before))
        found[present] = self.descend_weights(gram, start / start.sum() if start.sum() > 0 else start + 1 / len(start))
        return found

    def descend_weights(self, gram: np.ndarray, w: np.ndarray) -> np.ndarray:
        """Projected gradient descent of ½wᵀGw on the simplex, G scaled by the mean gradient norm."""
        G = gram / np.mean(np.sqrt(np.maximum(np.diag(gram), 0) + 1e-4)) ** 2
        step = np.eye(len(w)) - self.step_size * G
        with np.errstate(over="ignore", invalid="ignore"):  # `round` checks the result
            for _ in range(self.iterations):
                # First project onto the plane of sum 1, which is cheap; usually the result is in the simplex.
                w = step @ w
                w += (1 - w.sum()) / len(w)
                if w.min() < 0:
                    w = project_to_simplex(w)
        return w


def _start_of_next(w: Tensor, before: Tensor, present: Tensor) -> Tensor:
    """Where the next round's descent starts: tasks that the cohort lacks keep their weights, the others share the rest.

    From a weight of 0, which they have in this round, they would hardly come back.
    """
    if bool(present.all()):
        return w
    absent = before * ~present
    return absent + (1 - absent.sum()) * w


def _sum_and_norms(compressed: Iterable[Compressed]) -> tuple[Tensor, list[float]]:
    """ΣC and every ‖C‖. The d × m matrices of the clients are made one after the other to save memory."""
    matrices = (each.dense() for each in compressed)
    total = next(matrices)
    norms = [_norm(total)]
    for C in matrices:
        norms.append(_norm(C))
        total += C
        del C  # before the next matrix is made
    return total, torch.stack(norms).tolist()  # synchronises a GPU once


def _norm(C: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(C, dtype=torch.float64)
    return norm


def gram_estimate(compressed_norm: float, terms: GramTermReplies) -> np.ndarray:
    """ΣAᵀA + ΣCᵀ(S−C) + 2ΣDᵀ(S−C), plus (M−1)ΣDᵀD if the compression error is large; `compressed_norm` is Σ‖C‖²."""
    gram, residual = terms.known.cpu().numpy(), terms.residual.cpu().numpy()
    if np.sqrt(compressed_norm) <= 1.5 * np.sqrt(np.trace(residual)):
        others = np.maximum(_clients(terms) - 1, 0)
        gram = gram + np.sqrt(np.outer(others, others)) * residual
    return gram


def _clients(terms: GramTermReplies) -> np.ndarray:
    """How many clients have each task."""
    if terms.shares is None:
        return np.full(terms.layout.tasks, len(terms.cohort))
    return np.asarray((terms.shares > 0).sum(dim=0).numpy())


def in_simplex(w: np.ndarray) -> bool:
    """Whether w is in the simplex, up to rounding."""
    return bool((w >= 0).all() and abs(w.sum() - 1) <= 1e-6)


def project_to_simplex(v: np.ndarray) -> np.ndarray:
    """The nearest point of the probability simplex, by sorting."""
    u = np.sort(v)[::-1]
    excess = (np.cumsum(u) - 1) / np.arange(1, len(v) + 1)
    projected: np.ndarray = np.maximum(v - excess[np.count_nonzero(u > excess) - 1], 0)
    return projected
