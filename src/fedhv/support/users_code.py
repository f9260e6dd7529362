"""Errors that a user's own code raises: its file and line, in one line."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

_KEPT = "_said_in_users_code"


def said_in_users_code(error: BaseException) -> str:
    """File, line and message of an error that a user's code raised; empty if only libraries were at work."""
    kept = getattr(error, _KEPT, None)
    if kept is not None:
        return str(kept)
    where = _place(error)
    said = error.msg if isinstance(error, SyntaxError) else error
    return f"{where}: {type(error).__name__}: {str(said).rstrip('.')}" if where else ""


def keep_place(error: BaseException, sent: BaseException) -> None:
    """Keep this with an error that is sent to another process, which has no traceback of it."""
    setattr(sent, _KEPT, said_in_users_code(error))


def _place(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{error.filename}, line {error.lineno}"
    libraries = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    installed = (*libraries, str(Path(__file__).parents[1]))
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        file = frame.f_code.co_filename
        if not file.startswith(("<", *installed)):
            return f"{file}, line {line}"
    return ""
