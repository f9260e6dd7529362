r"""Aggregation of the clients' reports: the paper's mean, or a robust rule if reports may be false.

For one task let M reports arrive, h of them false and the rest honest.

| rule    | breakdown point | effect of h false reports                                                        |
|---------|-----------------|----------------------------------------------------------------------------------|
| mean    | 0               | anything: one report of size R moves it by about R/M                             |
| median  | 1/2             | with h < M/2 it stays between the smallest and the largest honest report         |
| trimmed | `trim`          | with h ≤ g = ⌈trim · M⌉ it stays between the smallest and the largest honest one |

The median moves by at most h places in the order of the honest reports, so it hardly moves if they lie close together
near the middle. For the weights, $\|w - w'\|_1 \le (2/\tilde\rho)\,\|\hat F - \hat F'\|_\infty$ for slacks of at least
$\tilde\rho$ (`fedhv.theory`, the Lipschitz constant of the weight map).
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from fedhv.support.errors import InputError
from fedhv.support.numbers import is_number

Aggregate = Literal["mean", "median", "trimmed"]


def check_aggregate(aggregate: object, trim: object) -> None:
    """Reject an unknown rule, or a trim that leaves no report."""
    if aggregate not in get_args(Aggregate):
        raise InputError(f"`aggregate` should be 'mean', 'median' or 'trimmed'. Found `aggregate = {aggregate!r}`.")
    if not is_number(trim) or not 0 <= trim < 0.5:
        raise InputError(f"`trim` should be in [0, 0.5). Found `trim = {trim!r}`.")


def trimmed_away(reports: int, trim: float) -> int:
    """g: the number of reports cut at each end, at least the given fraction of M. At least one report is left."""
    return min(math.ceil(trim * reports - 1e-9), (reports - 1) // 2)


def aggregate_reports(
    reports: Tensor, aggregate: Aggregate = "mean", trim: float = 0.0, shares: Tensor | None = None
) -> Tensor:
    """One number per task from M × m reports.

    `shares`, M × m, are the weights of the reports in the mean. Reports with share 0 are left out of every rule. A task
    without reports is NaN.
    """
    if shares is not None:
        if aggregate == "mean":
            shares = shares.to(reports)
            return (shares * reports).sum(dim=0) / shares.sum(dim=0)
        kept = [reports[shares[:, i] > 0, i : i + 1] for i in range(reports.shape[1])]
        each = [
            aggregate_reports(task, aggregate, trim) if len(task) else task.new_full((1,), math.nan) for task in kept
        ]
        return torch.cat(each)
    if aggregate == "mean":
        return reports.mean(dim=0)
    ordered = reports.sort(dim=0).values
    count = len(ordered)
    cut = (count - 1) // 2 if aggregate == "median" else trimmed_away(count, trim)
    return ordered[cut : count - cut].mean(dim=0)
