"""The sum over a cohort has the same bits, whichever parts of it are summed elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from problems import everything_random

from fedhv.protocol.client import Client
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.exchange import Call, Collector, collect, summed
from fedhv.protocol.intake import Intake
from fedhv.protocol.local import LocalTraining
from fedhv.protocol.requests import Train, TrainReply
from fedhv.protocol.sums import SIZES, Sums

CLIENT = Client(everything_random())
LAYOUT = CLIENT.layout
THETA = torch.zeros(LAYOUT.d)


def a_call(n: int, **intake) -> Call:
    cohort = Cohort(range(n), round=0, seed=0, local=LocalTraining(1, 1, 0.1))
    return Call(Train(THETA, report=1), cohort, Intake(**intake))


def replies(n: int) -> list[TrainReply]:
    """Updates of magnitudes so different that every order of additions gives other bits; some are refused."""
    draws = torch.Generator().manual_seed(n)
    scales = 10 ** (6 * torch.rand(n, generator=draws) - 3)
    made = [TrainReply(s * torch.randn(LAYOUT.d, generator=draws), torch.rand(2, generator=draws)) for s in scales]
    made[n // 2] = replace(made[n // 2], update=torch.full((LAYOUT.d,), torch.nan))
    return made


def holding(client: int):
    return CLIENT.holding(client % 5)


@pytest.mark.parametrize("average", ["clients", "examples"])
@pytest.mark.parametrize("n", [1, 31, 32, 33, 257, 700])
def test_every_division_along_the_tree_gives_the_same_bits(n, average):
    call, answers = a_call(n, average=average, norms=True), replies(n)
    expected = collect(call, LAYOUT, answers, holding)
    for level, size in enumerate(SIZES):
        sums = Sums()
        for start in range(0, n, size):
            part = call.of(call.cohort.clients[start : start + size])
            sums.add(summed(part, LAYOUT, answers[start : start + size], holding).joined(), level)
        found = Collector(call, LAYOUT, holding, sums.total()).replies()
        assert torch.equal(found.mean_update, expected.mean_update)
        assert found.reports is expected.reports is None or torch.equal(found.reports, expected.reports)
        assert list(found.cohort.clients) == list(expected.cohort.clients)
        assert found.refused == expected.refused
        assert [refusal.client for refusal in found.refused] == [n // 2]
        assert found.norms == expected.norms


def test_a_small_cohort_is_one_plain_sum_and_a_large_one_is_not():
    for n, plain in ((32, True), (200, False)):
        answers = replies(n)
        total = torch.zeros(LAYOUT.d)
        for reply in answers:
            if reply.update.isfinite().all():
                total += reply.update
        found = collect(a_call(n), LAYOUT, answers, holding).mean_update
        assert torch.equal(found, total.div_(n - 1)) == plain
