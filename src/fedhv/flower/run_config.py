"""Values of an app's run configuration. A missing or empty value is None."""

from __future__ import annotations

from typing import Any

from fedhv.flower.patience import Patience
from fedhv.flower.roster_file import read_owners
from fedhv.protocol.report_privacy import ReportPrivacy
from fedhv.support.errors import InputError
from fedhv.support.numbers import is_number


def text(settings: Any, name: str) -> str | None:
    """A value that should be text."""
    value = settings.get(name)
    if value is not None and not isinstance(value, str):
        raise _expected(name, "text", value)
    return value or None


def whole(settings: Any, name: str) -> int | None:
    """A value that should be a whole number."""
    value = settings.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise _expected(name, "a whole number", value)
    return value


def number(settings: Any, name: str) -> float | None:
    """A value that should be a number; 0 means None."""
    value = settings.get(name)
    if value is not None and not is_number(value):
        raise _expected(name, "a number", value)
    return float(value) if value else None


def patience(settings: Any, otherwise: Patience | None = None) -> Patience:
    """The time limits of the server."""
    given = otherwise or Patience()
    reply, nodes = number(settings, "reply-seconds"), number(settings, "node-seconds")
    return Patience(reply or given.reply, nodes or given.nodes, given.again)


def override(settings: Any) -> list[str]:
    """Changes of the setting: `quorum`, `grace`, `min-replies` and `profile`."""
    found: dict[str, Any] = {name: number(settings, name) for name in ("quorum", "grace")}
    found |= {"min_replies": whole(settings, "min-replies") or None, "profile": text(settings, "profile")}
    return [f"server.{name}={value}" for name, value in found.items() if value is not None]


def owners(settings: Any) -> dict[int, int] | None:
    """The node of every partition, from the file `roster`."""
    path = text(settings, "roster")
    return None if path is None else read_owners(path)


def reports(settings: Any) -> ReportPrivacy | None:
    """The clipping and noise of reports on the nodes."""
    clip, noise = number(settings, "report-clip"), number(settings, "report-noise")
    if clip is None and noise is not None:
        raise InputError("Noise of reports needs clipping. Set report-clip too.")
    return None if clip is None else ReportPrivacy(clip, noise or 0.0)


def _expected(name: str, kind: str, value: object) -> InputError:
    return InputError(f"The run configuration's `{name}` should be {kind}. Found {value!r}.")
