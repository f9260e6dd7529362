"""Errors that a user can act on: one line that says what was expected, what was found and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

LONGEST = 4000
"""Characters of an error; a quoted value may have millions."""
LONGEST_NAME = 100
"""Longer names are not compared with known ones: that takes a time that grows with their square."""


class FedHVError(Exception):
    """Anything FedHV reports to the user without a traceback; the command line exits with `exit_code`."""

    exit_code = 1

    def __str__(self) -> str:
        """One line that can be read, whatever it quotes; nothing in it can move a terminal's cursor."""
        said = _said(self)
        if len(said) > LONGEST:  # what was expected stands at its beginning, the remedy at its end
            said = f"{said[: LONGEST - 500]} … {said[-500:]}"
        return printable(said)


def printable(text: str) -> str:
    """Text in one line that can be read: nothing in it can break the line or move a terminal's cursor."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _said(error: Exception) -> str:
    return str(error.args[0]) if len(error.args) == 1 else " ".join(map(str, error.args))


class InputError(FedHVError, ValueError):
    """The input is wrong: a name, a value, a file. Nothing was written."""

    exit_code = 2


class Interrupted(FedHVError):
    """The user stopped a command; a run can be resumed."""

    exit_code = 130


class Diverged(FedHVError):
    """A run whose numbers have run away; its last good state is kept."""


def diverged(what: str, where: str = "") -> Diverged:
    """A run whose numbers are no longer finite; `where` says more, as a sentence."""
    remedy = "Lower the method's local_lr or server_lr."
    return Diverged(f"{what} no longer finite: the run has diverged. {remedy}{' ' + where if where else ''}")


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and what is at the bottom of it: compilers and recorders wrap what stops them."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def caused_by(error: BaseException, kind: type[BaseException]) -> bool:
    """Whether an error of this kind is at the bottom of another."""
    return any(isinstance(cause, kind) for cause in causes(error))


def unknown(kind: str, name: str, known: Iterable[str], hint: str = "", prefix: str = "") -> InputError:
    """An unknown name, with the nearest known one suggested; all of them are shown after `prefix`."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5) if len(name) <= LONGEST_NAME else []
    name = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"
    all_of_them = ", ".join(prefix + known for known in names) or "none"
    remedy = f"Did you mean '{prefix}{near[0]}'?" if near else f"Known: {all_of_them}."
    return InputError(f"Unknown {kind} '{prefix}{name}'. {remedy}{' ' + hint if hint else ''}")
