"""Words of messages that depend on a number or a list."""

from __future__ import annotations

from collections.abc import Sequence


def counted(n: int, noun: str, several: str = "") -> str:
    """Such as "1 round" and "2 rounds"; `several` is a plural that is not formed by an s."""
    return f"{n} {noun if n == 1 else several or noun + 's'}"


def joined(names: Sequence[str]) -> str:
    """Such as "a", "a and b" and "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
