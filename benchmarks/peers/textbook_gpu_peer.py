"""The textbook loop of plain federated averaging with all examples on the GPU: one client after the other.

python textbook_gpu_peer.py WORKLOAD DEVICE

Every client has a copy of the model and a torch.optim.SGD. Images are normalised before the first round, and the
examples of a client's minibatches are gathered at once, on the device, without a DataLoader.
"""

from __future__ import annotations

import copy
import sys

import numpy as np
import torch
import torch.nn.functional as F
from reading import make_model, read
from torch_turns import torch_turns


def main() -> None:
    path, device = sys.argv[1:]
    workload = read(path)
    numbers = workload.numbers
    images, labels = workload.normalised().to(device), workload.labels.to(device)
    rng = np.random.default_rng(0)
    server = make_model(numbers).to(device).train()
    for _ in torch_turns(path, device, server.state_dict):
        total = [torch.zeros_like(parameter) for parameter in server.parameters()]
        for k in rng.choice(workload.clients, numbers.participants, replace=False):
            order = torch.from_numpy(workload.order(int(k), rng)).to(device)
            model = copy.deepcopy(server)
            optimizer = torch.optim.SGD(model.parameters(), lr=numbers.rate)
            batches = zip(images[order].split(numbers.batch), labels[order].split(numbers.batch), strict=True)
            for inputs, targets in batches:
                optimizer.zero_grad()
                outputs = model(inputs)
                losses = [F.cross_entropy(output, targets[:, i]) for i, output in enumerate(outputs)]
                (sum(losses) / len(losses)).backward()
                optimizer.step()
            with torch.no_grad():
                for sum_, new, old in zip(total, model.parameters(), server.parameters(), strict=True):
                    sum_ += new - old
        with torch.no_grad():
            for parameter, each in zip(server.parameters(), total, strict=True):
                parameter += each / numbers.participants


if __name__ == "__main__":
    main()
