"""Garbage collection during rounds leaves old objects alone, and a program's own settings too."""

from __future__ import annotations

import gc

import pytest

from fedhv.support import collection
from fedhv.support.collection import only_new_objects


@pytest.fixture
def thawed(monkeypatch):
    """No object is frozen before and after."""
    monkeypatch.setattr(collection, "_frozen", False)  # all tests run in only_new_objects
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


def frozen(thing) -> bool:
    """Whether collections pass over an object. A count would change with what other threads let go of."""
    return not any(each is thing for each in gc.get_objects())


def test_within_itself_it_does_nothing_and_counts_nothing(thawed, monkeypatch):
    old = [[]]
    with only_new_objects():
        new = [[]]
        with monkeypatch.context() as patch:
            patch.setattr(gc, "get_freeze_count", lambda: pytest.fail("a million objects were counted"))
            with only_new_objects():
                assert frozen(old)
                assert not frozen(new)
        assert frozen(old)
    assert gc.get_freeze_count() == 0


def test_after_an_error_it_begins_anew(thawed):
    with pytest.raises(ValueError, match="inside"), only_new_objects():
        raise ValueError("inside")
    assert gc.get_freeze_count() == 0
    with only_new_objects():
        assert gc.get_freeze_count() > 0


def test_what_a_program_has_frozen_stays_frozen(thawed):
    old = [[]]
    gc.freeze()
    new = [[]]
    with only_new_objects():
        assert frozen(old)
        assert not frozen(new)
    assert frozen(old)
