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

ALIGNMENT = 16
BLOCK = 4096
"""The number of rows in one block of a sum over the rows of a tall matrix."""


@dataclass(frozen=True)
class Compressed:
    """A d × m matrix as a low-rank product: stack(A) ≈ left @ right."""

    left: Tensor
    right: Tensor
    shape: tuple[int, int]

    def dense(self) -> Tensor:
        """The d × m matrix from the factors."""
        product = _padded(self.left) @ _padded(self.right)
        return _unstack(product[: len(self.left), : self.right.shape[1]], *self.shape)


def rank(d: int, m: int, extra_upload: float) -> int:
    """The largest rank whose factors fit into `extra_upload` × d scalars; at least 1."""
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

    The factors are Q and QᵀB, with B the stacked matrix and Q an orthonormal basis of the range of (BBᵀ)²BΩ. Their
    product equals UΣVᵀ of a randomised SVD of that rank; no decomposition is needed.
    """
    _, d, m = matrices.shape
    rows, columns, r = stack_shape(d, m, extra_upload)
    B = _stack(matrices)
    Q = _orthonormal(B @ _sketches(rngs, columns, r, B))
    for _ in range(POWER_ITERATIONS):
        Q = _orthonormal(B.mT @ Q)
        Q = _orthonormal(B @ Q)
    P = Q.mT @ B
    factors = zip(Q[:, :rows, :r], P[:, :r, :columns], strict=True)  # without the padding
    return [Compressed(left, right, (d, m)) for left, right in factors]


def inner_products(X: Tensor, Y: Tensor) -> Tensor:
    """XᵀY of two tall matrices, d × m: every column of one with every column of the other."""
    whole = len(X) // BLOCK * BLOCK if X.is_cuda else 0
    if whole == 0:
        return X.mT @ Y
    # As one product, the library uses a few of a GPU's multiprocessors; in blocks it uses all of them.
    left, right = (torch.unflatten(Z[:whole], 0, (-1, BLOCK)) for Z in (X, Y))
    return (left.mT @ right).sum(dim=0) + X[whole:].mT @ Y[whole:]


def _aligned(size: int, device: torch.device) -> int:
    """The next multiple of 16 on a GPU, whose tensor cores are several times slower at other sizes."""
    return size + -size % ALIGNMENT if device.type == "cuda" else size


def _padded(matrix: Tensor) -> Tensor:
    """The matrix with zero rows and columns up to aligned sizes."""
    rows, columns = matrix.shape
    more_rows, more_columns = (_aligned(size, matrix.device) - size for size in (rows, columns))
    return torch.nn.functional.pad(matrix, (0, more_columns, 0, more_rows))


def _sketches(rngs: Sequence[np.random.Generator], rows: int, columns: int, B: Tensor) -> Tensor:
    """Ω of every generator: independent entries symmetric about 0, padded with zeros to aligned sizes.

    Any such distribution works as well as the normal one. Uniform 16-bit integers are drawn many times faster, and
    there may be millions. The generators draw in parallel, into pinned memory.
    """
    drawn = torch.empty(len(rngs), rows, columns, dtype=torch.int16, pin_memory=B.is_cuda)

    def draw(rng: np.random.Generator, out: np.ndarray) -> None:
        words = rng.bit_generator.random_raw(-(-out.size // 4))
        out.reshape(-1)[:] = words.view(np.int16)[: out.size]

    with ThreadPoolExecutor() as threads:
        list(threads.map(draw, rngs, drawn.numpy()))
    omega = B.new_zeros(len(rngs), B.shape[-1], _aligned(columns, B.device))
    omega[:, :rows, :columns] = drawn.to(B.device, non_blocking=True).to(B.dtype).add_(0.5).mul_(2.0**-15)
    return omega


def _orthonormal(X: Tensor) -> Tensor:
    """An orthonormal basis of the columns of each matrix, by Cholesky of XᵀX in double precision.

    It uses matrix products only, which are fast in a batch. The ridge keeps the factor finite if columns are dependent;
    it is far below the resolution of single precision.
    """
    # A matrix that is not finite has no basis; the product with B is then not finite either.
    wide = X.double().nan_to_num(0.0, 0.0, 0.0)
    gram = wide.mT @ wide
    scale = gram.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    ridge = (1e-14 * scale + 1e-300) * torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    factor = torch.linalg.cholesky(gram + ridge)
    # The factor is small and X is tall: one inverse and a product are much faster than a solve for every row.
    eye = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    inverse = torch.linalg.solve_triangular(factor, eye.expand_as(factor), upper=False)
    basis: Tensor = wide @ inverse.mT
    return basis.to(X.dtype)


def _stack(matrices: Tensor) -> Tensor:
    """Cut d × m matrices into blocks of ⌊√(dm)⌋ rows, padded with zeros, and place the blocks side by side.

    The result has more zero rows and columns, up to aligned sizes.
    """
    n, d, m = matrices.shape
    rows = math.isqrt(d * m)
    blocks = -(-d // rows)
    padded = torch.nn.functional.pad(matrices.mT, (0, blocks * rows - d))
    stacked = matrices.new_zeros(n, *(_aligned(size, matrices.device) for size in (rows, blocks * m)))
    stacked[:, :rows, : blocks * m].view(n, rows, blocks, m)[:] = padded.view(n, m, blocks, rows).permute(0, 3, 2, 1)
    return stacked


def _unstack(stacked: Tensor, d: int, m: int) -> Tensor:
    """The inverse of `_stack`: the d × m matrix, with contiguous columns."""
    rows, columns = stacked.shape
    return stacked.view(rows, columns // m, m).permute(2, 1, 0).reshape(m, -1)[:, :d].T
