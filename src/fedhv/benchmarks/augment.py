"""Image operations on the device: normalisation, and in training rotation and mirroring.

The order matters. The paper's experiments rotate normalised images and fill the corners with zeros, so a corner has the
mean colour of the dataset, not black. Apply `Rotate` after `Normalise`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedhv.support.errors import InputError


@dataclass(frozen=True)
class Normalise:
    """From stored bytes to the model's inputs: (x / 255 − mean) / std per channel.

    Attributes:
        mean: One number per channel.
        std: One number per channel.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, images: Tensor) -> Tensor:
        """Normalised images (…, channels, rows, columns)."""
        x = images.float() / 255
        # Plain numbers instead of a tensor of constants: without a copy to the device this can be compiled, mapped over
        # clients and captured in a CUDA graph.
        channels = [
            (x.narrow(-3, c, 1) - mean) / std for c, (mean, std) in enumerate(zip(self.mean, self.std, strict=True))
        ]
        return channels[0] if len(channels) == 1 else torch.cat(channels, dim=-3)


@dataclass(frozen=True)
class Rotate:
    """Rotate every image counter-clockwise about its centre by a random angle; mirror whole minibatches.

    One `grid_sample` does both. The corners become 0 (see the module's docstring).

    Attributes:
        degrees: Angles are uniform within ± this.
        whole: Angles are whole numbers of degrees, both ends included.
        mirror: The probability that a whole minibatch is mirrored left–right after the rotation.
        mode: "bilinear" or "nearest". The paper's experiments interpolate in MultiMNIST and MNIST–FMNIST, and
            take the nearest pixel in CIFAR10–MNIST.
    """

    degrees: float
    whole: bool = False
    mirror: float = 0.0
    mode: str = "bilinear"

    def __post_init__(self) -> None:
        if not 0 <= self.degrees <= 180:
            raise InputError(f"Parameter `degrees` should lie in [0, 180]. Found `degrees = {self.degrees}`.")
        if self.whole and self.degrees != int(self.degrees):
            raise InputError(f"Whole angles need a whole `degrees`. Found `degrees = {self.degrees}`.")
        if not 0 <= self.mirror <= 1:
            raise InputError(f"Parameter `mirror` should lie in [0, 1]. Found `mirror = {self.mirror}`.")
        if self.mode not in ("bilinear", "nearest"):
            raise InputError(f"Parameter `mode` should be 'bilinear' or 'nearest'. Found `mode = {self.mode}`.")

    def draw(self, rng: np.random.Generator, steps: int, batch: int) -> np.ndarray:
        """(steps, batch, 2): every image's angle in degrees, and its minibatch's sign, −1 if mirrored."""
        draws = np.empty((steps, batch, 2), np.float32)
        if self.whole:
            draws[..., 0] = rng.integers(-int(self.degrees), int(self.degrees) + 1, (steps, batch))
        else:
            draws[..., 0] = rng.uniform(-self.degrees, self.degrees, (steps, batch))
        draws[..., 1] = np.where(rng.random((steps, 1)) < self.mirror, -1, 1)
        return draws

    def apply(self, inputs: Tensor, draws: Tensor) -> Tensor:
        """The rotated images; `inputs` is (n, channels, rows, columns) and normalised, `draws` is (n, 2)."""
        # Coordinates need more than half precision: an error of 2⁻⁸ is several pixels at the border of an image.
        exact = inputs if inputs.dtype == torch.float64 else inputs.float()
        angle, sign = torch.deg2rad(draws[:, 0].to(exact.dtype)), draws[:, 1].to(exact.dtype)
        rows, columns = inputs.shape[-2:]
        y = _centred(rows, exact)[None, :, None]
        # Mirroring the result is reading its columns in reverse.
        x = sign[:, None, None] * _centred(columns, exact)[None, None, :]
        cos, sin = angle.cos()[:, None, None], angle.sin()[:, None, None]
        # In pixels from the centre, then in the units of grid_sample, where an image spans -1 to 1.
        grid = torch.stack([(cos * x - sin * y) * (2 / columns), (sin * x + cos * y) * (2 / rows)], dim=-1)
        turned = F.grid_sample(exact, grid, mode=self.mode, padding_mode="zeros", align_corners=False)
        return turned.to(inputs.dtype)


def _centred(pixels: int, like: Tensor) -> Tensor:
    """Pixel centres as distances from the middle of the image."""
    return torch.arange(pixels, device=like.device, dtype=like.dtype) - (pixels - 1) / 2
