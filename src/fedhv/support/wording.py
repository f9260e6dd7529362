"""Words of messages that depend on a number or a list, and users' names in tables and figures."""

from __future__ import annotations

import re
from collections.abc import Sequence

_CONTROL = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]+")


def counted(n: int, noun: str, several: str = "") -> str:
    """Such as "1 round" and "2 rounds"; `several` is a plural that is not formed by an s."""
    return f"{n} {noun if n == 1 else several or noun + 's'}"


def joined(names: Sequence[str]) -> str:
    """Such as "a", "a and b" and "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def on_one_line(text: str) -> str:
    """The text without line breaks and control characters, which tables cannot hold."""
    return _CONTROL.sub(" ", text)


def plain(text: str, longest: int = 48) -> str:
    """A user-chosen name for a figure: one line, no mathematics, no leading underscore, which legends would hide."""
    text = on_one_line(text)
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    text = text.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
