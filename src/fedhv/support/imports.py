"""User methods and benchmarks, named "package.module:name"."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from fedhv.support.errors import InputError
from fedhv.support.users_code import said_in_users_code


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
        said = said_in_users_code(error)
        if said:
            raise InputError(f"The {kind} '{path}' could not be imported: {said}. Correct the file.") from error
        raise _not_found(path, kind, error) from None


def _not_found(path: str, kind: str, error: Exception) -> InputError:
    module, _, name = path.partition(":")
    if module.endswith(".py") and "/" not in module:
        return InputError(
            f"The {kind} should be named by module and object. Found '{path}'. Use '{module[:-3]}:{name}'."
        )
    message = f"The {kind} '{path}' could not be imported: {error}."
    if isinstance(error, ModuleNotFoundError):
        message += f" Modules are looked for in the working directory, {Path.cwd()}, and where Python finds packages."
    return InputError(message)
