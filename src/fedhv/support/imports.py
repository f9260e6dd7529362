"""User methods and benchmarks, named "package.module:name"."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from fedhv.support.errors import InputError


def import_object(path: str, kind: str) -> Any:
    """The object at "package.module:name". The working directory is searched as well."""
    module, _, name = path.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        if module.endswith(".py") and "/" not in module:
            raise InputError(
                f"The {kind} should be named by module and object. Found '{path}'. Use '{module[:-3]}:{name}'."
            ) from None
        raise InputError(f"The {kind} '{path}' could not be imported: {error}.") from None
