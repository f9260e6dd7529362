"""Errors that a user can act on: one line that says what was expected, what was found and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FedHVError(Exception):
    """Anything FedHV reports to the user without a traceback; the command line exits with `exit_code`."""

    exit_code = 1


class InputError(FedHVError, ValueError):
    """The input is wrong: a name, a value, a file. Nothing was written."""

    exit_code = 2


def unknown(kind: str, name: str, known: Iterable[str], hint: str = "") -> InputError:
    """An unknown name, with the nearest known one suggested."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    remedy = f"Did you mean '{near[0]}'?" if near else f"Known: {', '.join(names) or 'none'}."
    return InputError(f"Unknown {kind} '{name}'. {remedy}{' ' + hint if hint else ''}")
