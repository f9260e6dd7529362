"""Labels hidden on purpose, so that a study of missing labels is possible on every benchmark."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from fedhv.problem.missing import rows
from fedhv.problem.problem import Problem
from fedhv.problem.random import Purpose, stream
from fedhv.support.errors import InputError


def hide_labels(problem: Problem, share: float, by: str, seed: int) -> Problem:
    """The problem with a share of its training labels hidden.

    Args:
        problem: Its test labels stay.
        share: In [0, 1).
        by: "label": every label by itself; "task": all labels that a client has of a task.
        seed: Of the choice.
    """
    if not 0 <= share < 1:
        raise InputError(f"`federation.missing` should be in [0, 1). Found {share}.")
    if share == 0:
        return problem
    n, m, clients = len(problem.train), len(problem.tasks), problem.clients
    draws = stream(seed, Purpose.MISSING)
    keep = np.ones((m, n), dtype=bool)
    if by == "label":
        keep = draws.random((m, n)) >= share
    else:
        kept = draws.random((len(clients), m)) >= share
        kept[np.arange(len(clients)), draws.integers(m, size=len(clients))] = True  # every client keeps a task
        kept[draws.integers(len(clients), size=m), np.arange(m)] = True  # and every task a client
        owners = np.repeat(np.arange(len(clients)), clients.sizes)
        keep[:, clients.indices] = kept[owners].T
    # A client without any label could not take part: it keeps its first example whole.
    lost = [k for k, mine in enumerate(clients) if not keep[:, mine].any()]
    for k in lost:
        keep[:, clients[k][0]] = True
    before = problem.train.labelled or (None,) * m
    masks = tuple(
        _mask(torch.from_numpy(keep[i]), target, old)
        for i, (target, old) in enumerate(zip(problem.train.targets, before, strict=True))
    )
    return replace(problem, train=replace(problem.train, labelled=masks))


def _mask(keep: torch.Tensor, target: torch.Tensor, old: torch.Tensor | None) -> torch.Tensor:
    mask = keep.view(-1, *[1] * (target.ndim - 1)).expand(target.shape).clone()
    return mask if old is None else mask & old


def shown(problem: Problem) -> list[float]:
    """The share of training labels that are there, for every task."""
    masks = problem.train.labelled or (None,) * len(problem.tasks)
    return [1.0 if mask is None else float(rows(mask).double().mean()) for mask in masks]
