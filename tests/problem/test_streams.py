"""Streams that are seeded together are NumPy's own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedhv.problem.random import Purpose, stream
from fedhv.problem.streams import streams

WORDS = st.integers(0, 2**32 - 1)
PLACES = st.tuples(st.integers(0, 2**40), st.sampled_from(Purpose), WORDS, WORDS, st.integers(0, 2_000_000))


@given(st.lists(PLACES, max_size=6))
def test_streams_that_are_seeded_together_equal_single_ones(places):
    together = [rng.integers(2**63, size=3).tolist() for rng in streams(places)]
    assert together == [stream(*place).integers(2**63, size=3).tolist() for place in places]


def test_no_stream_for_no_place():
    assert streams([]) == []
