"""BatchNorm's policies on a GPU: a compiled stack of clients against one client after the other.

    python benchmarks/gpu_norms.py

A small residual network with BatchNorm, random images, clients of different sizes. Prints, for every policy, the
distance between the two engines' models after a few rounds, relative to their distance from the start.
Fails above 1 %.
"""

from __future__ import annotations

import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedhv import FedHV, LocalTraining, Problem, classification
from fedhv.engines import Engine, Sequential, Stacked, choose_device
from fedhv.simulation.rounds import Plan, initial_state, simulate

SIZES = (12, 40, 48, 64, 64, 80)
METHOD = FedHV(reference=(9.0, 9.0), report=2, local_lr=0.05)
PLAN = Plan(rounds=4, participants=4, local=LocalTraining(5, 16, 0.05, 0.5), evaluate_every=0, seed=1)
LARGEST = 0.01


class Residual(nn.Module):
    """Two residual blocks and two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1, bias=False),
                nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1, bias=False),
            )
            for _ in range(2)
        )  # fmt: skip
        self.heads = nn.ModuleList([nn.Linear(16, 5), nn.Linear(16, 3)])

    def forward(self, images: Tensor) -> list[Tensor]:
        features = self.stem(images)
        for block in self.blocks:
            features = features + block(features)
        pooled = F.relu(features).mean(dim=(2, 3))
        return [head(pooled) for head in self.heads]


def problem(norm: str) -> Problem:
    """Clients with random images, and labels that are functions of them."""
    generator = torch.Generator().manual_seed(0)
    clients = []
    for n in SIZES:
        images = torch.randn(n, 3, 16, 16, generator=generator)
        means = images.mean(dim=(1, 2, 3))
        targets = [(means * 40).long().clamp(-2, 2) + 2, (means > 0).long() + (means > 0.03).long()]
        clients.append((images, targets))
    tasks = [classification("a", 5), classification("b", 3)]
    return Problem.from_clients(Residual, tasks, clients, clients[-1], norm=norm)


def model(engine: Engine) -> tuple[Tensor, Tensor]:
    """Before the first round and after the last."""
    start = initial_state(engine, METHOD, PLAN.seed).model
    *_, last = simulate(engine, METHOD, PLAN)
    return start.cpu(), last.state.model.cpu()


def main() -> int:
    """Compare; the exit status is 1 if a policy disagrees."""
    device, worst = choose_device(), 0.0
    print(f"{'norm':9}apart after {PLAN.rounds} rounds, relative to the distance moved ({device})")
    for norm in ("frozen", "local", "average", "group"):
        whole = problem(norm)
        with Sequential(whole, device) as one, Stacked(whole, device, compiled=False) as many:
            (start, alone), (_, stacked) = model(one), model(many)
            apart = float((alone - stacked).norm() / (alone - start).norm())
            how = (
                "compiled"
                if many.training.compiles
                else "as a stack"
                if many.obstacle is None
                else f"alone: {many.obstacle}"
            )
        print(f"{norm:9}{apart:.1e}   {how}")
        worst = max(worst, apart)
    return int(not worst <= LARGEST)


if __name__ == "__main__":
    sys.exit(main())
