"""What a server makes of replies by comparing them with each other: outliers, and robust means of updates.

Both need every reply of the cohort at once, M updates in memory; the plain mean needs one beside the sum.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from fedhv.protocol.aggregation import trimmed_away
from fedhv.protocol.fields import TensorField
from fedhv.protocol.request import Refusal
from fedhv.protocol.rows import rows
from fedhv.protocol.screening import Screening

MAJORITY = 3
"""The smallest number of replies that can be compared: of two replies, either may be the outlier."""


def update_norms(fields: Mapping[str, TensorField], replies: Sequence[Any]) -> Tensor | None:
    """The norms of what clients want the model to move by; None where their replies are about something else.

    The norms stay on the device of the updates: a GPU is synchronised once they are read.
    """
    parts = []
    for name, about in fields.items():
        values = [] if about.bound != "update" else [v for r in replies if (v := getattr(r, name)) is not None]
        if values and len(values) == len(replies):
            stack = values[0][None] if len(values) == 1 else rows(values)
            parts.append(torch.linalg.vector_norm(stack.flatten(1), dim=1, dtype=torch.float64))
    return torch.stack(parts).norm(dim=0) if parts else None


def outliers(
    screening: Screening, fields: Mapping[str, TensorField], norms: Mapping[int, float], replies: Mapping[int, Any]
) -> list[Refusal]:
    """The clients of a cohort whose updates or reports are far from those of the others."""
    refused = _far(screening.outlier, norms, "an update of norm")
    names = [name for name, about in fields.items() if about.bound == "report"]
    out = {refusal.client for refusal in refused}
    for name in names if screening.report_outlier is not None else []:
        reports = {k: value.tolist() for k, reply in replies.items() if (value := getattr(reply, name)) is not None}
        for i in range(len(next(iter(reports.values()), []))):
            # A task that a client has no label of is 0 in its report.
            losses = {k: report[i] for k, report in reports.items() if report[i] > 0}
            more = [
                each for each in _far(screening.report_outlier, losses, "a reported loss of") if each.client not in out
            ]
            out |= {refusal.client for refusal in more}
            refused += more
    return refused


def _far(factor: float | None, values: Mapping[int, float], what: str) -> list[Refusal]:
    if factor is None or len(values) < MAJORITY:
        return []
    median = statistics.median(values.values())
    return [
        Refusal(k, f"{what} {value:.3g}, more than {factor:g} times the cohort's median {median:.3g}")
        for k, value in values.items()
        if median > 0 and value > factor * median
    ]


def robust_mean(stack: Tensor, rule: Literal["median", "trimmed"], trim: float, there: Tensor | None = None) -> Tensor:
    """The median or the trimmed mean of n tensors, coordinate by coordinate.

    `there` says which tensors count at which coordinates (it broadcasts with the stack): a head is combined over the
    clients that trained it. Where none counts the result is 0.
    """
    n = len(stack)
    if there is None or bool(there.all()):
        cut = (n - 1) // 2 if rule == "median" else trimmed_away(n, trim)
        return stack.sort(dim=0).values[cut : n - cut].mean(dim=0)
    there = there.expand_as(stack)
    ordered = torch.where(there, stack, torch.inf).sort(dim=0).values
    count = there.sum(dim=0)
    cuts = torch.tensor([(c - 1) // 2 if rule == "median" else trimmed_away(c, trim) for c in range(1, n + 1)])
    ends = torch.cat([torch.zeros(1, dtype=torch.long), cuts]).to(stack.device)[count]
    rank = torch.arange(n, device=stack.device).view(-1, *[1] * (stack.ndim - 1))
    kept = (rank >= ends) & (rank < count - ends)
    total = torch.where(kept, ordered, torch.zeros(()).to(stack)).sum(dim=0)
    return total / kept.sum(dim=0).clamp(min=1)
