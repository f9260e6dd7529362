"""User methods and benchmarks, named "package.module:name"."""

from __future__ import annotations

import importlib
import sys
import sysconfig
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from fedhv.support.errors import InputError


def import_object(path: str, kind: str) -> Any:
    """The object at "package.module:name". The working directory is searched as well."""
    module, _, name = path.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    found = _import_module(path, module, kind)
    try:
        return getattr(found, name)
    except AttributeError as error:
        raise _not_found(path, kind, error) from None


def _import_module(path: str, module: str, kind: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except Exception as error:  # whatever the user's module does while it is imported
        where = _place(error)
        if where:
            said = error.msg if isinstance(error, SyntaxError) else error
            raise InputError(
                f"The {kind} '{path}' could not be imported: {where}: {type(error).__name__}: {str(said).rstrip('.')}. "
                "Correct the file."
            ) from error
        raise _not_found(path, kind, error) from None


def _not_found(path: str, kind: str, error: Exception) -> InputError:
    module, _, name = path.partition(":")
    if module.endswith(".py") and "/" not in module:
        return InputError(
            f"The {kind} should be named by module and object. Found '{path}'. Use '{module[:-3]}:{name}'."
        )
    return InputError(f"The {kind} '{path}' could not be imported: {error}.")


def _place(error: Exception) -> str:
    """File and line of a user's code that raised an error; empty if none was reached."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{error.filename}, line {error.lineno}"
    libraries = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    installed = (*libraries, str(Path(__file__).parents[1]))
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        file = frame.f_code.co_filename
        if not file.startswith(("<", *installed)):
            return f"{file}, line {line}"
    return ""
