"""FedCMOO's compression of task gradients: a low-rank approximation by randomised SVD of a nearly square stack."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

POWER_ITERATIONS = 2


@dataclass(frozen=True)
class Compressed:
    """A d × m matrix as a low-rank product: stack(A) ≈ left @ right."""

    left: Tensor
    right: Tensor
    shape: tuple[int, int]

    def dense(self) -> Tensor:
        """The d × m matrix that the factors stand for."""
        return _unstack(self.left @ self.right, *self.shape)


def rank(d: int, m: int, extra_upload: float) -> int:
    """The rank that an upload of `extra_upload` × d scalars pays for; at least 1."""
    return max(1, int(extra_upload * d / (2 * math.sqrt(d * m))))


def compress(matrix: Tensor, extra_upload: float, rng: np.random.Generator) -> Compressed:
    """Randomised SVD with two power iterations of the nearly square stack of a d × m matrix.

    With Q an orthonormal basis of the range of (BBᵀ)²BΩ, the best rank-r approximation of QQᵀB is QU_r(QU_r)ᵀB,
    U_r the leading eigenvectors of (QᵀB)(QᵀB)ᵀ: an r-by-r symmetric problem instead of a singular value
    decomposition of a wide matrix.
    """
    d, m = matrix.shape
    B = _stack(matrix)
    r = min(rank(d, m, extra_upload), *B.shape)
    columns = min(r + r // 10, *B.shape)
    omega = rng.standard_normal((B.shape[1], columns), dtype=np.float32)
    Q = torch.linalg.qr(B @ torch.from_numpy(omega).to(B)).Q
    for _ in range(POWER_ITERATIONS):
        Q = torch.linalg.qr(B.T @ Q).Q
        Q = torch.linalg.qr(B @ Q).Q
    P = Q.T @ B
    U = torch.linalg.eigh(P @ P.T).eigenvectors[:, -r:]
    return Compressed(Q @ U, U.T @ P, (d, m))


def _stack(matrix: Tensor) -> Tensor:
    """Cut a d × m matrix into blocks of ⌊√(dm)⌋ rows, zero padded, and lay them side by side."""
    d, m = matrix.shape
    rows = math.isqrt(d * m)
    blocks = -(-d // rows)
    padded = torch.nn.functional.pad(matrix, (0, 0, 0, blocks * rows - d))
    return padded.view(blocks, rows, m).permute(1, 0, 2).reshape(rows, blocks * m)


def _unstack(stacked: Tensor, d: int, m: int) -> Tensor:
    rows, columns = stacked.shape
    return stacked.view(rows, columns // m, m).permute(1, 0, 2).reshape(-1, m)[:d]
