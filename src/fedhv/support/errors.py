"""Errors for users: one line with what was expected, what was found, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

LONGEST = 4000
"""The largest number of characters in an error. A quoted value may have millions."""
LONGEST_NAME = 100
"""Longer names are not compared with known ones, because the comparison takes quadratic time."""


class FedHVError(Exception):
    """An error that is shown without a traceback. The command line exits with `exit_code`."""

    exit_code = 1

    def __str__(self) -> str:
        """One readable line, without control characters, whatever it quotes."""
        text = _text(self)
        if len(text) > LONGEST:  # keep the beginning (what was expected) and the end (what to do)
            text = f"{text[: LONGEST - 500]} … {text[-500:]}"
        return printable(text)


def printable(text: str) -> str:
    """Text as one readable line: line breaks and control characters are replaced."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _text(error: Exception) -> str:
    return str(error.args[0]) if len(error.args) == 1 else " ".join(map(str, error.args))


class InputError(FedHVError, ValueError):
    """Invalid input: a name, a value or a file. Nothing was written."""

    exit_code = 2


class Interrupted(FedHVError):
    """The user stopped a command. A run can be resumed."""

    exit_code = 130


class EarlyStop(Exception):
    """Raise it in an observer's `round` to end the run after this round: `fedhv.run` returns the run as it is then."""


class Diverged(FedHVError):
    """A run has diverged. Its last good state is kept."""


def diverged(what: str, where: str = "") -> Diverged:
    """The error for values that are no longer finite; `where` is a sentence with details."""
    remedy = "Lower the method's local_lr or server_lr."
    return Diverged(f"{what} no longer finite: the run has diverged. {remedy}{' ' + where if where else ''}")


@contextmanager
def one_line(expected: str) -> Iterator[None]:
    """Turn an exception in a user's code into an input error that begins with `expected`; it is the error's cause."""
    try:
        yield
    except (FedHVError, MemoryError):
        raise
    except Exception as error:
        raise InputError(f"{expected} Found {type(error).__name__}: {error}") from error


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error and the chain of its causes. Compilers wrap the errors that they meet."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def caused_by(error: BaseException, kind: type[BaseException]) -> bool:
    """Whether an error, or one of its causes, is of this type."""
    return any(isinstance(cause, kind) for cause in causes(error))


def unknown(kind: str, name: object, known: Iterable[str], hint: str = "", prefix: str = "") -> InputError:
    """The error for an unknown name. It suggests the nearest known name, or lists all; `prefix` precedes each name."""
    names, name = sorted(known), str(name)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5) if len(name) <= LONGEST_NAME else []
    name = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"
    all_of_them = ", ".join(prefix + known for known in names) or "none"
    remedy = f"Did you mean '{prefix}{near[0]}'?" if near else f"Known: {all_of_them}."
    return InputError(f"Unknown {kind} '{prefix}{name}'. {remedy}{' ' + hint if hint else ''}")
