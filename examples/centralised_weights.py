"""Only the weights, in a multi-task loop in plain PyTorch: no federation, no engine, two lines of FedHV.

One network has two tasks on a handwritten digit. It is trained twice, with equal weights and with inverse-slack
weights, from the same initial model.

    python examples/centralised_weights.py
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import fedhv

TASKS = ("digit", "heavy")
EPOCHS = 12


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(64, 32), nn.ReLU())
        self.heads = nn.ModuleList([nn.Linear(32, 10), nn.Linear(32, 2)])

    def forward(self, x: Tensor) -> list[Tensor]:
        shared = self.trunk(x)
        return [head(shared) for head in self.heads]


def data() -> tuple[Tensor, list[Tensor]]:
    """Images with two labels: the digit, and whether it has more ink than the median of that digit."""
    digits = load_digits()
    images, labels = torch.tensor(digits.data / 16).float(), torch.tensor(digits.target)
    ink = images.sum(dim=1)
    usual = torch.stack([ink[labels == digit].median() for digit in range(10)])
    return images, [labels, (ink > usual[labels]).long()]


def task_losses(net: Net, x: Tensor, targets: list[Tensor]) -> Tensor:
    return torch.stack([cross_entropy(output, target) for output, target in zip(net(x), targets, strict=True)])


def train(balanced: bool) -> list[float]:
    """Train, and return the accuracy of every task on digits by writers outside the training examples."""
    torch.manual_seed(0)
    x, targets = data()
    rows, held_out = torch.arange(1437), torch.arange(1437, len(x))
    net = Net()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    weights = torch.full((2,), 0.5)
    with torch.no_grad():  # the reference: the initial losses, which are the largest, plus a margin
        reference = task_losses(net, x[rows], [t[rows] for t in targets]) + 0.15
    for _ in range(EPOCHS):
        seen = []
        for batch in rows[torch.randperm(len(rows))].split(32):
            losses = task_losses(net, x[batch], [t[batch] for t in targets])
            optimiser.zero_grad()
            (weights @ losses).backward()
            optimiser.step()
            seen.append(losses.detach())
        if balanced:  # once per epoch, from the epoch's mean losses: one minibatch would be too noisy
            weights = fedhv.inverse_slack_weights(torch.stack(seen).mean(dim=0), reference)
    with torch.no_grad():
        answers = net(x[held_out])
    return [
        100 * float((answer.argmax(dim=1) == target[held_out]).float().mean())
        for answer, target in zip(answers, targets, strict=True)
    ]


if __name__ == "__main__":
    torch.set_num_threads(1)  # such a small network is slower on several threads
    for name, balanced in (("equal weights", False), ("inverse-slack weights", True)):
        scores = train(balanced)
        print(f"{name:22}", "  ".join(f"{task} {score:.1f} %" for task, score in zip(TASKS, scores, strict=True)))
