"""Composition of two images into one, for MultiMNIST, MNIST–FMNIST and digits."""

from __future__ import annotations

import numpy as np

from fedhv.support.errors import InputError


def compose(
    first: np.ndarray, second: np.ndarray, *, canvas: int, offsets: tuple[int, int] = (0, 0), size: int
) -> np.ndarray:
    """Place two square images on a black canvas, overlap by maximum, resize to `size` by nearest neighbour.

    Pair i is `first[i]` with its corner at row and column `offsets[0]`, and `second[i]` at `offsets[1]`.

    Args:
        first: (n, s, s) grey values.
        second: (n, s, s) grey values of the same type.
        canvas: Rows and columns of the black canvas; both images must fit on it.
        offsets: The positions of the two images on the diagonal.
        size: Rows and columns of the result.

    Returns:
        (n, size, size) grey values, of the type of `first`.
    """
    if first.ndim != 3 or first.shape[1] != first.shape[2] or first.shape != second.shape:
        raise InputError(
            "Parameters `first` and `second` should be square images of one shape (n, s, s). "
            f"Found {first.shape} and {second.shape}."
        )
    side = first.shape[1]
    if min(offsets) < 0 or max(offsets) + side > canvas or size < 1:
        raise InputError(
            f"Images of {side} pixels at offsets {offsets} should fit on the canvas and `size` be positive. "
            f"Found `canvas = {canvas}`, `size = {size}`."
        )
    # The canvas is not created: only the pixels that remain after the resize are read.
    seen = nearest(canvas, size)
    out: np.ndarray = np.maximum(_placed(first, seen - offsets[0]), _placed(second, seen - offsets[1]))
    return out


def nearest(source: int, target: int) -> np.ndarray:
    """The source pixel of each target pixel: floor(i · source / target), as in PyTorch."""
    return np.arange(target) * source // target


def _placed(images: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    """The given rows and columns of the images; pixels outside are black."""
    inside = np.flatnonzero((pixels >= 0) & (pixels < images.shape[1]))
    out = np.zeros((len(images), len(pixels), len(pixels)), images.dtype)
    if len(inside):
        a, b = inside[0], inside[-1] + 1  # contiguous, because the pixels ascend
        out[:, a:b, a:b] = images[:, pixels[a:b]][:, :, pixels[a:b]]
    return out
