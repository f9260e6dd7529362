"""The paper's models: one shared encoder and one head per task.

The encoder's parameters come before the heads', and the heads are the module list `heads`, from which the program
detects shared parameters and heads. A forward pass returns one output per task.

Outputs are logits. The paper's heads end in log-softmax (or, for attributes, in a sigmoid). Here the losses take logits
and apply these functions, which gives the same losses and gradients and is numerically safer.

Weights have PyTorch's default initialisation; nothing is pretrained.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn


class MultiTask(nn.Module):
    """A shared encoder followed by one head per task."""

    def __init__(self, encoder: nn.Module, heads: Iterable[nn.Module]) -> None:
        super().__init__()
        self.encoder = encoder
        self.heads = nn.ModuleList(heads)

    def forward(self, inputs: Tensor) -> list[Tensor]:
        """One output per task."""
        shared = self.encoder(inputs)
        return [head(shared) for head in self.heads]


class LeNet(MultiTask):
    """The LeNet of MultiMNIST and MNIST–FMNIST: 34,635 parameters for two tasks of ten classes.

    Args:
        tasks: The number of heads.
        classes: Outputs of every head.
        side: Rows and columns of the grey input images.
    """

    def __init__(self, tasks: int = 2, classes: int = 10, side: int = 28) -> None:
        # 28 → 28 → 14 → 12 → 6: the first convolution is padded, the second is not
        last = (side // 2 - 2) // 2
        super().__init__(
            nn.Sequential(
                nn.Conv2d(1, 10, 3, padding=1),
                nn.MaxPool2d(2),
                nn.ReLU(),
                nn.Conv2d(10, 15, 3),
                nn.MaxPool2d(2),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(15 * last * last, 50),
                nn.ReLU(),
                nn.Dropout(0.5),
            ),
            (
                nn.Sequential(nn.Linear(50, 50), nn.ReLU(), nn.Dropout(0.5), nn.Linear(50, classes))
                for _ in range(tasks)
            ),
        )


class CIFARNet(MultiTask):
    """The network of CIFAR10–MNIST, for 32x32 colour images: 1,726,508 parameters for two tasks."""

    def __init__(self, tasks: int = 2, classes: int = 10) -> None:
        super().__init__(
            nn.Sequential(
                # Maximum and ReLU commute; with pooling first, ReLU has a quarter of the work.
                nn.Conv2d(3, 64, 3, padding=1),
                nn.MaxPool2d(2),
                nn.ReLU(),
                nn.Conv2d(64, 64, 3, padding=1),
                nn.MaxPool2d(2),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(64 * 8 * 8, 384),
                nn.ReLU(),
                nn.Dropout(0.5),
                nn.Linear(384, 192),
                nn.ReLU(),
                nn.Dropout(0.5),
            ),
            # no activation between the two layers of a head, as in the paper's experiments
            (nn.Sequential(nn.Linear(192, 100), nn.Linear(100, classes)) for _ in range(tasks)),
        )


class ResNet18(MultiTask):
    """The ResNet-18 of CelebA5 with GroupNorm of two groups, for 32x32 colour images.

    11,189,352 parameters for five tasks of eight attributes.
    """

    def __init__(self, tasks: int = 5, labels: int = 8) -> None:
        super().__init__(
            nn.Sequential(
                nn.Conv2d(3, 64, 3, padding=1, bias=False),
                nn.GroupNorm(2, 64),
                nn.ReLU(),
                *(ResidualBlock(64, 64, 1), ResidualBlock(64, 64, 1)),
                *(ResidualBlock(64, 128, 2), ResidualBlock(128, 128, 1)),
                *(ResidualBlock(128, 256, 2), ResidualBlock(256, 256, 1)),
                *(ResidualBlock(256, 512, 2), ResidualBlock(512, 512, 1)),
                # The last map is 4x4. The benchmark's public definition averages its first 3x3 window. We keep this,
                # so that losses and references are comparable with the paper's.
                nn.AvgPool2d(3),
                nn.Flatten(),
            ),
            (nn.Linear(512, labels) for _ in range(tasks)),
        )


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with a skip connection, which is a projection if the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
            nn.GroupNorm(2, outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.GroupNorm(2, outputs),
        )
        same = stride == 1 and inputs == outputs
        self.shortcut: nn.Module = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.GroupNorm(2, outputs))
        )
        self.activation = nn.ReLU()

    def forward(self, inputs: Tensor) -> Tensor:
        """The activated sum of both paths."""
        out: Tensor = self.activation(self.path(inputs) + self.shortcut(inputs))
        return out
