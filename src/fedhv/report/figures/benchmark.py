"""Figures of a benchmark: the labels of each client, and some images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from fedhv.problem.problem import Benchmark, Clients, Examples
from fedhv.report.figures.drawing import WIDTH, drawing, panels
from fedhv.support.errors import InputError
from fedhv.support.wording import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CLIENTS = 100
"""The largest number of clients in the figure."""
EXAMPLES = 12
COLUMNS = 6


def label_distribution(benchmark: Benchmark, clients: Clients) -> Figure:
    """For every task the share of each label in each client's examples, clients across, labels down."""
    with drawing():
        from matplotlib.ticker import MaxNLocator

        shown = min(len(clients), MOST_CLIENTS)
        tables = [label_shares(benchmark, clients, i, shown) for i in range(len(benchmark.tasks))]
        heights = [min(2.4, 0.75 + 0.11 * len(table)) for table in tables]
        figure, axes = panels(len(tables), 1, sum(heights) / len(heights), sharex=True)
        top = max(float(table.max()) for table in tables)
        image: Any = None
        for each, table, task in zip(axes, tables, benchmark.tasks, strict=True):
            each.grid(False)
            image = each.imshow(table, aspect="auto", cmap="Blues", vmin=0, vmax=top, interpolation="nearest")
            each.set_title(plain(task.name))
            each.set_ylabel("Label")
            each.set_yticks(range(0, len(table), 1 if len(table) <= 12 else 5))
        axes[-1].set_xlabel(f"Client (the first {shown} of {len(clients)})" if shown < len(clients) else "Client")
        axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        figure.colorbar(image, ax=axes, label="Share of the client's examples", pad=0.015, aspect=30)
        return figure


def label_shares(benchmark: Benchmark, clients: Clients, task: int, shown: int) -> np.ndarray:
    """(labels, clients): the share of each class, or of the examples with each yes/no label."""
    targets = benchmark.train.labels(task)
    if targets.ndim > 1:
        known = benchmark.train.targets[task].numpy()  # a missing label is not a positive one
        shares = [known[clients[k]].reshape(len(clients[k]), -1).mean(axis=0) for k in range(shown)]
    elif np.issubdtype(targets.dtype, np.floating):
        raise InputError(f"Task '{benchmark.tasks[task].name}' has no labels to count.")
    else:
        classes = int(targets.max()) + 1
        shares = [_counts(targets[clients[k]], classes) / len(clients[k]) for k in range(shown)]
    return np.array(shares).T


def _counts(labels: np.ndarray, classes: int) -> np.ndarray:
    """The number of examples of each class. Examples without a label are not counted."""
    return np.bincount(labels[labels >= 0], minlength=classes)


def examples(benchmark: Benchmark) -> Figure:
    """The first test images, each with its labels."""
    with drawing():
        pictures = images(benchmark, EXAMPLES)
        rows = -(-len(pictures) // COLUMNS)
        figure, axes = panels(rows, COLUMNS, WIDTH / COLUMNS * 1.2)
        for each in axes:
            each.axis("off")
        for i, (each, picture) in enumerate(zip(axes, pictures, strict=False)):
            each.imshow(picture, cmap="gray", interpolation="nearest")
            each.set_title(_labels(benchmark, i), fontsize=6.5)
        return figure


def images(benchmark: Benchmark, count: int) -> np.ndarray:
    """(n, height, width) or (n, height, width, 3) in [0, 1]."""
    stored = _shown(benchmark)[:count].inputs
    if not isinstance(stored, Tensor) or stored.ndim != 4 or stored.shape[1] not in (1, 3):
        raise InputError(f"The inputs of {benchmark.name} are not images.")
    inputs = stored.float().numpy()
    if stored.is_floating_point():
        low, high = float(inputs.min()), float(inputs.max())
        inputs = (inputs - low) / max(high - low, 1e-12)
    else:
        inputs = inputs / 255
    pictures: np.ndarray = inputs[:, 0] if inputs.shape[1] == 1 else inputs.transpose(0, 2, 3, 1)
    return pictures


def _shown(benchmark: Benchmark) -> Examples:
    return benchmark.train if benchmark.test is None else benchmark.test


def _labels(benchmark: Benchmark, i: int) -> str:
    """The labels of a test image; empty for tasks with many binary labels."""
    pairs = zip(benchmark.tasks, _shown(benchmark).targets, strict=True)
    parts = [f"{plain(task.name, 12)} {targets[i].item():g}" for task, targets in pairs if targets.ndim == 1]
    lines = [" · ".join(parts[k : k + 2]) for k in range(0, min(len(parts), 6), 2)]
    return "\n".join(lines) + (" …" if len(parts) > 6 else "")
