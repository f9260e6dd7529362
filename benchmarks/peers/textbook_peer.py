"""The textbook loop: NCHW, a DataLoader and a copy of the model for every client, one process.

python textbook_peer.py WORKLOAD fedhv|plain

It has some optimisations: images that are already normalised, augmentation per minibatch, reports in batches of 512.
"""

from __future__ import annotations

import copy
import sys

import numpy as np
import torch
import torch.nn.functional as F
from messages import turns
from reading import make_model, read
from torch.utils.data import DataLoader, Subset, TensorDataset

from fedhv.benchmarks.random_images import SHAPES
from fedhv.runs.config import load_setting


def main() -> None:
    path, kind = sys.argv[1:]
    workload = read(path)
    numbers = workload.numbers
    data = TensorDataset(workload.normalised(), workload.labels)
    augment = SHAPES[load_setting(numbers.setting).benchmark].augment if kind == "fedhv" else None
    rng = np.random.default_rng(0)
    server = make_model(numbers)
    weights, reference = torch.full((numbers.tasks,), 1 / numbers.tasks), torch.full((numbers.tasks,), 3.0)

    def losses(model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return torch.stack([F.cross_entropy(output, labels[:, i]) for i, output in enumerate(model(images))])

    for _ in turns():
        total, reports = None, []
        for k in rng.choice(workload.clients, numbers.participants, replace=False):
            own = Subset(data, workload.of(int(k)).tolist())
            model = copy.deepcopy(server)
            if kind == "fedhv":
                model.eval()
                with torch.no_grad():
                    parts = [(losses(model, x, y), len(x)) for x, y in DataLoader(own, batch_size=512)]
                reports.append(sum(each * n for each, n in parts) / len(own))
            model.train()
            optimizer = torch.optim.SGD(model.parameters(), lr=numbers.rate)
            loader = DataLoader(own, batch_size=numbers.batch, shuffle=True, drop_last=True)
            step = 0
            while step < numbers.steps:
                for images, labels in loader:
                    if augment is not None:
                        images = augment.apply(images, torch.from_numpy(augment.draw(rng, 1, len(images))[0]))
                    optimizer.zero_grad()
                    (weights @ losses(model, images, labels)).backward()
                    optimizer.step()
                    step += 1
                    if step == numbers.steps:
                        break
            with torch.no_grad():
                update = [new - old for new, old in zip(model.parameters(), server.parameters(), strict=True)]
            total = update if total is None else [a + b for a, b in zip(total, update, strict=True)]
        with torch.no_grad():
            for parameter, each in zip(server.parameters(), total, strict=True):
                parameter += each / numbers.participants
        if reports:
            inverse = 1 / (reference - torch.stack(reports).mean(dim=0)).clamp(min=1e-6)
            weights = inverse / inverse.sum()


if __name__ == "__main__":
    main()
