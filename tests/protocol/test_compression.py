"""FedCMOO's compression: near the best approximation of its rank, at the price that is counted."""

import math
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedhv.methods.fedcmoo import _sum_and_norms
from fedhv.problem.random import Purpose, stream
from fedhv.protocol import compression
from fedhv.protocol.compression import Compressed, compress, compress_all, inner_products, rank, stack_shape


def rng(seed=0):
    return stream(seed, Purpose.COMPRESSION)


def gradients(d, m, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((d, m), dtype=np.float32))


def nearly_square(matrix):
    """The stack that is approximated, written from its description: blocks of ⌊√(dm)⌋ rows side by side."""
    d, m = matrix.shape
    rows = math.isqrt(d * m)
    blocks = [matrix[start : start + rows] for start in range(0, d, rows)]
    blocks[-1] = torch.cat([blocks[-1], torch.zeros(rows - len(blocks[-1]), m)])
    return torch.cat(blocks, dim=1)


@given(st.integers(1, 60), st.integers(1, 5), st.integers(0, 99))
def test_an_upload_that_pays_for_the_full_rank_loses_nothing(d, m, seed):
    A = gradients(d, m, seed)
    restored = compress(A, 1000.0, rng(seed)).dense()
    assert restored.shape == (d, m)
    torch.testing.assert_close(restored, A, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("d", "m"), [(4, 1), (9, 1), (16, 4), (50, 2), (20, 5)])
def test_a_stack_of_rank_one_survives_a_compression_to_rank_one(d, m):
    # equal rows and no padding: every row of the stack is the same
    A = gradients(1, m).repeat(d, 1)
    assert rank(d, m, 0.1) == 1
    torch.testing.assert_close(compress(A, 0.1, rng()).dense(), A)


@pytest.mark.parametrize(("d", "m"), [(400, 2), (1000, 3), (2500, 5)])
def test_the_error_is_close_to_that_of_the_best_approximation_of_its_rank(d, m):
    # a decaying spectrum, as gradients have
    A = gradients(d, m)
    B = nearly_square(A)
    U, _, Vt = torch.linalg.svd(B, full_matrices=False)
    sigma = 0.8 ** torch.arange(len(Vt))
    decaying = U * sigma @ Vt
    rows, columns = B.shape
    A = decaying.view(rows, columns // m, m).transpose(0, 1).reshape(-1, m)[:d]
    B = nearly_square(A)
    r = rank(d, m, 1.0)
    best = torch.linalg.svdvals(B)[r:].norm()
    error = (compress(A, 1.0, rng()).dense() - A).norm()
    assert error <= 1.3 * best


def test_the_rank_is_what_the_upload_pays_for():
    # ⌊extra · d / 2√(dm)⌋: for CIFAR10–MNIST's 1,685,888 shared parameters and two tasks 459
    assert rank(1_685_888, 2, 1.0) == 459
    assert rank(100, 4, 1.0) == 2
    assert rank(100, 4, 2.0) == 5
    assert rank(2, 2, 1.0) == 1


@pytest.mark.parametrize("d", [10_000, 33_333])
def test_the_factors_hold_as_many_scalars_as_are_counted(d):
    compressed = compress(gradients(d, 2), 1.0, rng())
    held = compressed.left.numel() + compressed.right.numel()
    assert held == pytest.approx(d, rel=0.02)


def test_the_same_stream_gives_the_same_factors_and_another_stream_others():
    A = gradients(300, 2)
    one, same, other = (compress(A, 1.0, rng(seed)).dense() for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1e6, 1e12])
def test_compression_is_linear_under_scaling(scale):
    A = gradients(300, 2)
    reference = compress(A, 1.0, rng()).dense()
    torch.testing.assert_close(compress(scale * A, 1.0, rng()).dense() / scale, reference, rtol=1e-3, atol=1e-3)


def test_zero_gradients_stay_zero():
    assert torch.equal(compress(torch.zeros(50, 2), 1.0, rng()).dense(), torch.zeros(50, 2))


def test_the_dense_matrix_is_the_unstacked_product():
    # d = 5, m = 1: blocks of ⌊√5⌋ = 2 rows, the third padded; left @ right = [[1, 2, 3], [4, 5, 6]]
    product = Compressed(torch.eye(2), torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), (5, 1))
    assert product.dense().ravel().tolist() == [1.0, 4.0, 2.0, 5.0, 3.0]


@pytest.mark.parametrize(("d", "m"), [(50, 2), (300, 3), (1000, 5)])
def test_sizes_that_are_filled_up_for_a_gpu_change_neither_factors_nor_matrix(d, m, monkeypatch):
    A = gradients(d, m)
    plain = compress(A, 1.0, rng())
    monkeypatch.setattr(compression, "_aligned", lambda size, device: size + -size % 16)
    filled = compress(A, 1.0, rng())
    rows, columns, r = stack_shape(d, m, 1.0)
    assert (filled.left.shape, filled.right.shape) == ((rows, r), (r, columns))
    torch.testing.assert_close(filled.dense(), plain.dense(), rtol=1e-4, atol=1e-4)


def test_matrices_compressed_together_are_those_compressed_alone():
    matrices = torch.stack([gradients(300, 2, seed) for seed in range(3)])
    together = compress_all(matrices, 1.0, [rng(seed) for seed in range(3)])
    for seed, compressed in enumerate(together):
        alone = compress(matrices[seed], 1.0, rng(seed))
        torch.testing.assert_close(compressed.dense(), alone.dense(), rtol=1e-4, atol=1e-4)


def test_sketches_are_independent_of_each_other_and_symmetric_about_zero():
    omega = compression._sketches([rng(0), rng(1)], 401, 37, torch.zeros(2, 10, 401))
    assert omega.shape == (2, 401, 37)
    assert omega.abs().max() < 1
    assert abs(float(omega.mean())) < 0.01  # of 29,674 entries: three standard deviations
    assert float(omega.var()) == pytest.approx(1 / 3, abs=0.01)
    correlation = torch.corrcoef(omega.flatten(1))[0, 1]
    assert abs(float(correlation)) < 0.03
    assert not (omega == 0).any()  # halves of odd numbers: nothing is lost to a zero


def test_every_column_of_a_dense_matrix_lies_in_one_piece():
    # inner products and the stacking of a sum read columns
    assert compress(gradients(300, 3), 1.0, rng()).dense().stride(0) == 1


@pytest.mark.parametrize("d", [5, 8192, 10_000])
def test_inner_products_in_blocks_are_those_of_the_whole(d, monkeypatch):
    X, Y = gradients(d, 3).double(), gradients(d, 2, seed=1).double()
    expected = X.T @ Y
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)  # only a GPU gains by blocks
    torch.testing.assert_close(inner_products(X, Y), expected)


def test_the_server_holds_one_clients_matrix_at_a_time_beside_their_sum(monkeypatch):
    clients = [compress(gradients(50, 2, seed), 1.0, rng(seed)) for seed in range(6)]
    matrices = torch.stack([each.dense() for each in clients])
    dense, made, alive = Compressed.dense, [], []

    def watched(self):
        made.append(weakref.ref(matrix := dense(self)))
        alive.append(sum(each() is not None for each in made))
        return matrix

    monkeypatch.setattr(Compressed, "dense", watched)
    total, norms = _sum_and_norms(clients)
    torch.testing.assert_close(total, matrices.sum(dim=0))
    assert norms == pytest.approx(matrices.double().flatten(1).norm(dim=1).tolist())
    assert max(alive) <= 2
