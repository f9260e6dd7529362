"""Checks of arguments that several functions take."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fedhv.methods import Method
from fedhv.methods.base import takes_reference
from fedhv.runs.config import as_overrides
from fedhv.runs.reference import Reference
from fedhv.runs.resolve import check_override
from fedhv.support.errors import InputError
from fedhv.support.numbers import as_seed


def changes_of(function: Callable[..., Any], settings: Mapping[str, Any], override: Iterable[str]) -> list[str]:
    """The changes of a setting: keywords of `function` such as `local_steps=5`, then `override`."""
    own = [each.name for each in inspect.signature(function).parameters.values() if each.kind != each.VAR_KEYWORD]
    changes = as_overrides(settings, own)
    check_override(override)
    return [*changes, *override]


def seeds_of(seeds: Sequence[int]) -> list[int]:
    """The seeds as integers of Python, at least one and none twice."""
    check_list("seeds", seeds)
    found = [as_seed(seed) for seed in seeds]
    check_distinct("seeds", found)
    return found


def check_applied(changes: Iterable[str], methods: Iterable[str | Method]) -> None:
    """Raise an error for changes of hyper-parameters that a method given as an object would ignore."""
    for change in changes:
        path = change.partition("=")[0].strip()
        for method in methods:
            if isinstance(method, Method) and path.startswith(f"methods.{method.label}."):
                key = path.rpartition(".")[2]
                raise InputError(
                    f"`{path}` would be ignored: the method is given as an object. Write "
                    f"{type(method).__name__}({key}=…), or name the method '{method.label}'."
                )


def check_reference_taken(given: Reference | None, methods: Sequence[Method]) -> None:
    """Raise an error for a reference that none of the methods would use."""
    if given is not None and not any(map(takes_reference, methods)):
        found = "None of the methods takes a" if len(methods) > 1 else f"Method '{methods[0].label}' takes no"
        raise InputError(f"{found} reference. Leave out --reference.")


def check_list(name: str, values: object) -> None:
    """Raise an error for text or a single value in place of a list."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"`{name}` should be a list. Found {values!r}.")


def check_distinct(name: str, values: Sequence[Any], remedy: str = "") -> None:
    """Raise an error for an empty list and for one that has a value twice."""
    if not values or len(set(values)) < len(values):
        raise InputError(f"`{name}` should name at least one, and none twice. Found {list(values)}.{remedy}")
