"""Examples run in this process: worker processes, each of which imports PyTorch, have tests of their own."""

import os

import pytest


@pytest.fixture(autouse=True)
def one_core(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0}, raising=False)
