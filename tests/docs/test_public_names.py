"""What others import is documented and typed, down to the methods of its classes."""

from __future__ import annotations

import inspect
from pathlib import Path

import fedhv
import fedhv.report
import fedhv.theory

PUBLIC = sorted(
    {
        (f"{package.__name__}.{name}", getattr(package, name))
        for package in (fedhv, fedhv.report, fedhv.theory)
        for name in package.__all__
        if callable(getattr(package, name))
    },
    key=lambda pair: pair[0],
)


def members(thing):
    """A function itself; of a class, its own public methods and properties."""
    if not inspect.isclass(thing):
        return [("", thing)]
    own = {name: value for name, value in vars(thing).items() if not name.startswith("_")}
    wrapped = {name: getattr(value, "fget", None) or getattr(value, "__func__", value) for name, value in own.items()}
    # A lambda is the default of a field, which the class's docstring describes.
    return [(n, value) for n, value in wrapped.items() if inspect.isfunction(value) and value.__name__ != "<lambda>"]


def test_every_public_name_is_documented():
    bare = [place for place, thing in PUBLIC if not inspect.getdoc(thing)]
    bare += [
        f"{place}.{name}" for place, thing in PUBLIC for name, member in members(thing) if not inspect.getdoc(member)
    ]
    assert bare == []


def test_every_public_name_is_typed():
    untyped = []
    for place, thing in PUBLIC:
        for name, member in members(thing):
            parameters = inspect.signature(member).parameters.values()
            bare = any(p.annotation is p.empty and p.name not in ("self", "cls") for p in parameters)
            if bare or "return" not in member.__annotations__:
                untyped.append(f"{place}.{name}")
    assert untyped == []


def test_type_checkers_find_the_mark():
    assert (Path(fedhv.__file__).parent / "py.typed").exists()
