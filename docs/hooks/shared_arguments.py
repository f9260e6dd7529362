"""The complete docstrings of functions that share arguments: they are completed at import, and pages read files."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import griffe


class SharedArguments(griffe.Extension):
    """Takes the docstring of a function that is decorated by `shares_arguments` from the function itself."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Called for every function of the package."""
        if func.docstring and any("shares_arguments" in str(each.value) for each in func.decorators):
            made = getattr(importlib.import_module(func.module.path), func.name)
            func.docstring.value = inspect.getdoc(made) or ""
