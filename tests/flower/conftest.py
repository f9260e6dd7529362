"""All tests here need Flower; deadlines of servers in this process do not depend on the machine's speed."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedhv[flower]'")

from fedhv.flower import available, exchange, mailbox
from flower.clock import Clock


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    made = Clock()
    for module in (available, exchange, mailbox):
        monkeypatch.setattr(module, "time", made)
    return made
