"""Words of messages that depend on a number."""

from __future__ import annotations


def counted(n: int, noun: str, several: str = "") -> str:
    """Such as "1 round" and "2 rounds"; `several` is a plural that is not formed by an s."""
    return f"{n} {noun if n == 1 else several or noun + 's'}"
