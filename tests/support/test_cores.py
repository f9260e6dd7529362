"""The cores that may be used are those that the system allows, not those that the machine has."""

from __future__ import annotations

import os

import pytest

from fedhv.engines import choose_engine
from fedhv.support.cores import usable_cores


def test_only_cores_that_are_allowed_count(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5, 9}, raising=False)
    assert usable_cores() == 3
    assert "3 cores" in choose_engine("auto", "cpu").reason


@pytest.mark.parametrize(("counted", "cores"), [(6, 6), (None, 1)])
def test_systems_without_affinity_count_what_they_have(monkeypatch, counted, cores):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: counted)
    assert usable_cores() == cores


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system pins no process to cores")
def test_a_process_pinned_to_one_core_speaks_of_one():
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert choose_engine("auto", "cpu").reason == "one core"
    finally:
        os.sched_setaffinity(0, before)
