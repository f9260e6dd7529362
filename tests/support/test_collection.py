"""Garbage collection during rounds leaves old objects alone, and a program's own settings too."""

from __future__ import annotations

import gc

import pytest

from fedhv.support.collection import only_new_objects


@pytest.fixture
def thawed():
    """No object is frozen before and after."""
    before = gc.get_freeze_count()
    gc.unfreeze()
    yield
    gc.unfreeze()
    if before:
        gc.freeze()


def test_old_objects_are_passed_over_until_the_end(thawed):
    with only_new_objects():
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0


def test_what_a_program_has_frozen_stays_frozen(thawed):
    gc.freeze()
    before = gc.get_freeze_count()
    with only_new_objects():
        assert gc.get_freeze_count() == before
    assert gc.get_freeze_count() == before
