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


def diverged(what: str) -> FedHVError:
    """A run whose numbers are no longer finite."""
    return FedHVError(f"{what} no longer finite: the run has diverged. Lower the method's local_lr or server_lr.")


def unknown(kind: str, name: str, known: Iterable[str], hint: str = "", prefix: str = "") -> InputError:
    """An unknown name, with the nearest known one suggested; all of them are shown after `prefix`."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    all_of_them = ", ".join(prefix + known for known in names) or "none"
    remedy = f"Did you mean '{prefix}{near[0]}'?" if near else f"Known: {all_of_them}."
    return InputError(f"Unknown {kind} '{prefix}{name}'. {remedy}{' ' + hint if hint else ''}")
