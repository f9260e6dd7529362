"""Inputs for parsers: valid ones with a few changes, parts of several, repetitions, and plain noise."""

from __future__ import annotations

from fuzz_targets import Target
from hypothesis import strategies as st

TOKENS = (
    b"", b"\0", b"\n", b"\xff", b"[", b"]", b"{", b"}", b'"', b"=", b".", b",", b"-", b"nan", b"inf", b"-inf", b"1e999",
    b"9" * 30, b"9" * 5000, b"true", b"null", b"[[", b"\xc3\x28", b"\xf0\x9f\x99\x82", b"0", b"-1", b"1.5", b"''",
    b"2026-01-01", b"training.rounds", b"methods", b"os:system", b"../../x", b"/etc/passwd", b"--set", b"\r", b"#",
)  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn, target: Target) -> bytes:
    """A valid input with a few pieces cut, doubled, overwritten or inserted."""
    data = draw(st.sampled_from(target.seeds))
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(data)))
        length = draw(st.integers(0, 40))
        piece = draw(st.sampled_from(TOKENS) | st.binary(max_size=12))
        match draw(st.integers(0, 4)):
            case 0:
                data = data[:start] + piece + data[start:]
            case 1:
                data = data[:start] + piece + data[start + len(piece) :]
            case 2:
                data = data[:start] + data[start + length :]
            case 3:
                data = data[: start + length] + data[start:]
            case 4:
                data = data[:start] + piece * draw(st.integers(1, 300)) + data[start:]
        data = data[:20_000]
    return data


def inputs(target: Target) -> st.SearchStrategy[bytes]:
    """What a parser is given."""
    return mutated(target) | mutated(target) | st.binary(max_size=300) | st.lists(st.sampled_from(TOKENS)).map(b"".join)
