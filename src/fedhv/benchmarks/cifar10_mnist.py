"""CIFAR10–MNIST: a half-transparent digit over a photograph; the tasks are the photograph's and the digit's class."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedhv.benchmarks.augment import Normalise, Rotate
from fedhv.benchmarks.composites import Pairs, cached, two_tasks
from fedhv.benchmarks.models import CIFARNet
from fedhv.data.catalogue import MNIST
from fedhv.data.cifar import cifar_files, load_cifar10
from fedhv.data.mnist import idx_files, load_mnist
from fedhv.problem.problem import Benchmark
from fedhv.support.errors import InputError

COLOUR = Normalise((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
"""The usual mean and standard deviation of CIFAR-10."""
ALPHA = 156
"""The opacity of a digit's pixels, out of 255."""
CHUNK = 5_000


def load(data: Path) -> Benchmark:
    """CIFAR10–MNIST with the tasks "CIFAR-10" and "MNIST": photograph i with digit i of the same split."""

    def build() -> tuple[Pairs, Pairs]:
        photographs, digits = load_cifar10(data), load_mnist(data)
        return pairs(*photographs[:2], *digits[:2]), pairs(*photographs[2:], *digits[2:])

    sources = [*cifar_files(data), *idx_files(data, MNIST)]
    splits = cached(data, "cifar10-mnist-v1", sources, build)
    # The paper's experiments rotate these images with another routine than MNIST's: whole degrees, nearest pixel.
    augment = Rotate(30, whole=True, mirror=0.4, mode="nearest")
    return two_tasks("CIFAR10-MNIST", ("CIFAR-10", "MNIST"), CIFARNet, splits, COLOUR, augment)


def pairs(
    photographs: np.ndarray, photograph_labels: np.ndarray, digits: np.ndarray, digit_labels: np.ndarray
) -> Pairs:
    """Photograph i under digit i."""
    n = len(photographs)
    if len(digits) < n:
        raise InputError(
            f"CIFAR10–MNIST needs a digit for each of {n} photographs. Found {len(digits)}; "
            "check the files with `fedhv data verify`."
        )
    return Pairs(overlay(photographs, digits[:n]), photograph_labels, digit_labels[:n])


def overlay(photographs: np.ndarray, digits: np.ndarray) -> np.ndarray:
    """Blend grey digits (n, s, s) into the middle of photographs (n, 3, S, S) where they are not black.

    out = (ALPHA · digit + (255 − ALPHA) · photograph) / 255, rounded, which is what Pillow's paste with a mask gives.
    """
    out = photographs.copy()
    start = (photographs.shape[-1] - digits.shape[-1]) // 2
    inner = slice(start, start + digits.shape[-1])
    for begin in range(0, len(out), CHUNK):  # the 16-bit intermediates of all images at once would be large
        window = out[begin : begin + CHUNK, :, inner, inner]
        digit = digits[begin : begin + CHUNK, None].astype(np.uint16)
        mixed = window * np.uint16(255 - ALPHA) + digit * np.uint16(ALPHA) + np.uint16(128)
        window[:] = np.where(digit > 0, (mixed + (mixed >> 8)) >> 8, window)
    return out
