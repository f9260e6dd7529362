"""Hiding of labels, for studies of missing labels on any benchmark."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedhv.problem.missing import rows
from fedhv.problem.problem import Clients, Problem
from fedhv.problem.random import Purpose, stream
from fedhv.support.errors import InputError


def hide_labels(problem: Problem, share: float, by: str, seed: int) -> Problem:
    """The problem with a fraction of its training labels hidden.

    Every client keeps a label. By tasks, every client keeps a task and every task a client, so that fewer labels are
    hidden than `share` says where there are few tasks.

    Args:
        problem: The problem; its test labels are not hidden.
        share: The fraction, in [0, 1).
        by: "label": every label independently; "task": all labels of a client and a task together.
        seed: The seed of the draws.
    """
    if not 0 <= share < 1:
        raise InputError(f"`federation.missing` should be in [0, 1). Found {share}.")
    if share == 0:
        return problem
    n, m, clients = len(problem.train), len(problem.tasks), problem.clients
    before = problem.train.labelled or (None,) * m
    there = np.stack([np.ones(n, bool) if mask is None else rows(mask).numpy() for mask in before])
    draws = stream(seed, Purpose.MISSING)
    if by == "label":
        keep = draws.random((m, n)) >= share
    else:
        keep = np.ones((m, n), bool)
        # An example that several clients hold is labelled only if all of them keep the task.
        np.logical_and.at(keep.T, clients.indices, _kept_tasks(draws, there, clients, share))
    for k in _without(keep & there, clients):  # a client without any label could not take part
        mine = clients[k]
        keep[:, mine[there[:, mine].any(axis=0).argmax()]] = True
    masks = tuple(
        _mask(torch.from_numpy(keep[i]), target, old)
        for i, (target, old) in enumerate(zip(problem.train.targets, before, strict=True))
    )
    return replace(problem, train=replace(problem.train, labelled=masks))


def _kept_tasks(draws: np.random.Generator, there: np.ndarray, clients: Clients, share: float) -> np.ndarray:
    """For every example that a client holds, whether the client keeps each task, in the order of the clients' lists."""
    has = np.add.reduceat(there[:, clients.indices], clients.offsets[:-1], axis=1).T > 0
    kept = draws.random(has.shape) >= share
    for chosen, owned in ((kept, has), (kept.T, has.T)):  # every client keeps a task, and every task a client
        favourite = np.where(owned, draws.random(owned.shape), -1).argmax(axis=1)
        chosen[np.arange(len(chosen)), favourite] = True
    return np.repeat(kept, clients.sizes, axis=0)


def _without(keep: np.ndarray, clients: Clients) -> list[int]:
    """The clients without any label."""
    any_label = np.asarray(keep.any(axis=0))[clients.indices]
    counts = np.add.reduceat(any_label.astype(np.int64), clients.offsets[:-1])
    return [int(k) for k in np.flatnonzero(counts == 0)]


def _mask(keep: Tensor, target: Tensor, old: Tensor | None) -> Tensor:
    mask = keep.view(-1, *[1] * (target.ndim - 1)).expand(target.shape).clone()
    return mask if old is None else mask & old


def shown(problem: Problem) -> list[float]:
    """The share of the clients' training examples that are labelled, for every task."""
    held = torch.from_numpy(problem.clients.indices)
    masks = problem.train.labelled or (None,) * len(problem.tasks)
    return [1.0 if mask is None else float(rows(mask)[held].double().mean()) for mask in masks]
