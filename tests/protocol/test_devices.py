"""Replies of a stack may lie on two devices: updates on a GPU, losses of clients computed alone on the host."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from fedhv.problem.labels import Holding
from fedhv.problem.parameters import Layout
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.exchange import Call, Collector
from fedhv.protocol.local import LocalTraining
from fedhv.protocol.requests.train import Train, TrainReply


def test_a_stack_on_two_devices_is_collected(monkeypatch):
    """The device `meta` stands in for a GPU; its tensors have no values, so nobody is found doubtful."""
    tested = []

    def nobody(flags):
        tested.append(flags.device.type)
        return SimpleNamespace(flatten=lambda: SimpleNamespace(tolist=list))

    monkeypatch.setattr(torch, "nonzero", nobody)
    layout = Layout(("a",), (torch.Size([4]),), (-1,), 2)
    call = Call(Train(torch.zeros(4, device="meta"), report="all"), Cohort([0, 1], 0, 0, LocalTraining(1, 1, 0.1)))
    collector = Collector(call, layout, lambda client: Holding(3))
    collector.take_stack([0, 1], [TrainReply(torch.zeros(4, device="meta"), torch.zeros(2)) for _ in range(2)])
    replies = collector.replies()
    assert tested == ["meta"], "one test on the device of the models"
    assert replies.means["update"].device.type == "meta"
    assert replies.stacks["report"].shape == (2, 2)
