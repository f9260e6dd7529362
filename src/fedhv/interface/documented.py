"""An argument that several functions take is documented once, with the function that is named first.

A type checker needs every argument in the signature of every function, so signatures are written in full.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

ARGUMENTS = "Args:\n"


def shares_arguments(*others: Callable[..., Any]) -> Callable[[Function], Function]:
    """Complete a docstring: arguments that it leaves out are described as in those of `others`."""

    def completed(function: Function) -> Function:
        if function.__doc__ is None:  # python -OO
            return function
        known: dict[str, str] = {}
        for other in others:
            known |= descriptions(other)
        known |= descriptions(function)
        before, _, rest = inspect.cleandoc(function.__doc__).partition(ARGUMENTS)
        after = rest.partition("\n\n")[1:]
        mine = [known[name] for name in inspect.signature(function).parameters]
        function.__doc__ = before + ARGUMENTS + "\n".join(mine) + "".join(after)
        return function

    return completed


def descriptions(function: Callable[..., Any]) -> dict[str, str]:
    """The lines of every argument in a docstring's "Args:"."""
    lines = inspect.cleandoc(function.__doc__ or "").partition(ARGUMENTS)[2].partition("\n\n")[0]
    entries = re.split(r"^(?=    \w)", lines, flags=re.M)
    return {entry.split(":")[0].strip(): entry.rstrip() for entry in entries if entry.strip()}
