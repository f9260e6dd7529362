"""The page of the Python interface: the public names, grouped by the room that defines them."""

from __future__ import annotations

import inspect
import sys

import fedhv

INTRODUCTION = """# Python

What `import fedhv` gives. All of it is typed (`py.typed`). [Reports](api-report.md) and
[theory](api-theory.md) have packages of their own.

"""
ORDER = ["runs", "problem", "methods", "protocol", "simulation", "support"]
"""Rooms in the order in which a reader meets them; any other follows."""
PACKAGES = {"fedhv.report": "Python: reports", "fedhv.theory": "Python: theory"}


def page() -> str:
    """Every public name."""
    groups: dict[str, list[str]] = {}
    for name in fedhv.__all__:
        if not name.startswith("_"):
            groups.setdefault(_module(name), []).append(name)
    place = {f"fedhv.{module}": i for i, module in enumerate(ORDER)}
    parts = [INTRODUCTION]
    for module in sorted(groups, key=lambda module: (place.get(module, len(place)), module)):
        parts.append(f"## {module}\n\n{_about(module)}\n")
        parts += [f"::: fedhv.{name}\n" for name in groups[module]]
    return "\n".join(parts)


def package_page(package: str) -> str:
    """The public names of one package."""
    __import__(package)
    names = [name for name in sys.modules[package].__all__ if callable(getattr(sys.modules[package], name))]
    return "\n".join([f"# {PACKAGES[package]}\n\n{_about(package)}\n", *(f"::: {package}.{name}\n" for name in names)])


def _module(name: str) -> str:
    """The room in which a public name is defined."""
    return ".".join(getattr(fedhv, name).__module__.split(".")[:2])


def _about(module: str) -> str:
    return (inspect.getdoc(sys.modules[module]) or "").split("\n\n")[0].replace("\n", " ")
