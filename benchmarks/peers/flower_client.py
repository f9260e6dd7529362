"""The client of Flower's simulation, in its own module, because Ray's actors import it."""

from __future__ import annotations

import functools
import os

import numpy as np
import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from reading import make_model, read
from torch.utils.data import DataLoader, TensorDataset


@functools.cache
def resident(path: str):
    """Read once by every actor."""
    torch.set_num_threads(1)
    workload = read(path)
    images = workload.normalised().contiguous(memory_format=torch.channels_last)
    model = make_model(workload.numbers).to(memory_format=torch.channels_last)
    return workload, images, model, np.random.default_rng(os.getpid())


def tuned(message: Message, partition: int, path: str) -> torch.nn.Module:
    """K steps on a model and on examples that stay in the actor."""
    workload, images, model, rng = resident(path)
    numbers = workload.numbers
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=numbers.rate)
    order = torch.from_numpy(workload.order(partition, rng))
    for index in order.view(numbers.steps, numbers.batch):
        step(model, optimizer, images[index], workload.labels[index])
    return model


def tutorial(message: Message, partition: int, path: str) -> torch.nn.Module:
    """K steps as in Flower's first tutorial: a new model, a DataLoader over the client's examples, NCHW."""
    workload, _, _, _ = resident(path)
    numbers = workload.numbers
    model = make_model(numbers)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    model.train()
    own = torch.from_numpy(workload.of(partition))
    data = TensorDataset(workload.normalised_of(own), workload.labels[own])
    optimizer, done = torch.optim.SGD(model.parameters(), lr=numbers.rate), 0
    while done < numbers.steps:
        for images, labels in DataLoader(data, batch_size=numbers.batch, shuffle=True, drop_last=True):
            if done < numbers.steps:
                step(model, optimizer, images, labels)
                done += 1
    return model


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, images: torch.Tensor, labels: torch.Tensor) -> None:
    optimizer.zero_grad()
    outputs = model(images)
    loss = sum(F.cross_entropy(output, labels[:, i]) for i, output in enumerate(outputs)) / len(outputs)
    loss.backward()
    optimizer.step()


def client(path: str, style: str) -> ClientApp:
    app = ClientApp()
    train_model = tuned if style == "tuned" else tutorial

    @app.train()
    def train(message: Message, context: Context) -> Message:
        model = train_model(message, int(context.node_config["partition-id"]), path)
        metrics = MetricRecord({"num-examples": 1.0})
        content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
        return Message(content=content, reply_to=message)

    return app
