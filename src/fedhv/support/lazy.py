"""Lazy imports, so that commands which compute nothing do not load PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")


def exports(package: str, homes: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package (PEP 562) whose names are imported at first use.

    Args:
        package: The package's `__name__`.
        homes: The names that each module defines. None of them may be the name of a submodule of `package`: the import
            system would replace it by the submodule.
    """
    home = {name: module for module, names in homes.items() for name in names}

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home})

    return get, names


class Registry(Mapping[str, T]):
    """Objects by name. Each is at "package.module:name" and is imported when it is looked up."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self.places = dict(places)

    def __getitem__(self, key: str) -> T:
        module, _, name = self.places[key].partition(":")
        found: T = getattr(import_module(module), name)
        return found

    def __contains__(self, key: object) -> bool:
        return key in self.places

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)
