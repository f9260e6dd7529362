"""FedCMOO's compression of task gradients: a low-rank approximation of a nearly square stack by randomised SVD."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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


def stack_shape(d: int, m: int, extra_upload: float) -> tuple[int, int, int]:
    """Rows and columns of the nearly square stack of a d × m matrix, and the rank of its approximation."""
    rows = math.isqrt(d * m)
    columns = -(-d // rows) * m
    return rows, columns, min(rank(d, m, extra_upload), rows, columns)


def compress(matrix: Tensor, extra_upload: float, rng: np.random.Generator) -> Compressed:
    """One d × m matrix compressed."""
    return compress_all(matrix[None], extra_upload, [rng])[0]


def compress_all(matrices: Tensor, extra_upload: float, rngs: Sequence[np.random.Generator]) -> list[Compressed]:
    """Randomised SVD with two power iterations of n matrices d × m, each with its own random sketch.

    The factors are Q and QᵀB, with B the stacked matrix and Q an orthonormal basis of the range of (BBᵀ)²BΩ: the
    same product as UΣVᵀ of a randomised SVD of that rank, without decomposing anything.
    """
    _, d, m = matrices.shape
    B = _stack(matrices)
    _, columns, r = stack_shape(d, m, extra_upload)
    Q = _orthonormal(B @ torch.from_numpy(_normal(rngs, columns, r)).to(B))
    for _ in range(POWER_ITERATIONS):
        Q = _orthonormal(B.mT @ Q)
        Q = _orthonormal(B @ Q)
    P = Q.mT @ B
    return [Compressed(left, right, (d, m)) for left, right in zip(Q, P, strict=True)]


def _normal(rngs: Sequence[np.random.Generator], rows: int, columns: int) -> np.ndarray:
    """Standard normal numbers from every generator, drawn side by side: there may be millions."""
    out = np.empty((len(rngs), rows, columns), np.float32)
    with ThreadPoolExecutor() as threads:
        for drawn in [
            threads.submit(rng.standard_normal, dtype=np.float32, out=o) for rng, o in zip(rngs, out, strict=True)
        ]:
            drawn.result()
    return out


def _orthonormal(X: Tensor) -> Tensor:
    """An orthonormal basis of the columns of each matrix, by Cholesky of XᵀX in double precision.

    All matrix products, so that a batch runs at the speed of the hardware. The ridge keeps the factor finite where
    columns are dependent; it is far below what single precision resolves.
    """
    wide = X.double().nan_to_num(
        0.0, 0.0, 0.0
    )  # what is not finite has no basis; its product with B shows that it is not
    gram = wide.mT @ wide
    scale = gram.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    ridge = (1e-14 * scale + 1e-300) * torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    factor = torch.linalg.cholesky(gram + ridge)
    # The factor is small and X tall: its inverse once and a product are much faster than a solve for every row.
    eye = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    inverse = torch.linalg.solve_triangular(factor, eye.expand_as(factor), upper=False)
    basis: Tensor = wide @ inverse.mT
    return basis.to(X.dtype)


def _stack(matrices: Tensor) -> Tensor:
    """Cut d × m matrices into blocks of ⌊√(dm)⌋ rows, zero padded, and lay the blocks side by side."""
    n, d, m = matrices.shape
    rows = math.isqrt(d * m)
    blocks = -(-d // rows)
    padded = torch.nn.functional.pad(matrices, (0, 0, 0, blocks * rows - d))
    return padded.view(n, blocks, rows, m).transpose(1, 2).reshape(n, rows, blocks * m)


def _unstack(stacked: Tensor, d: int, m: int) -> Tensor:
    rows, columns = stacked.shape
    return stacked.view(rows, columns // m, m).transpose(0, 1).reshape(-1, m)[:d]
