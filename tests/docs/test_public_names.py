"""What others import is documented and typed, down to the methods of its classes."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

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
NAMES = [name for name, _ in PUBLIC]


def members(thing):
    """A function itself; of a class, its own public methods and properties."""
    if not inspect.isclass(thing):
        return [("", thing)]
    own = {name: value for name, value in vars(thing).items() if not name.startswith("_")}
    wrapped = {name: getattr(value, "fget", None) or getattr(value, "__func__", value) for name, value in own.items()}
    # A lambda is the default of a field, which the class's docstring describes.
    return [(n, value) for n, value in wrapped.items() if inspect.isfunction(value) and value.__name__ != "<lambda>"]


@pytest.mark.parametrize("thing", [thing for _, thing in PUBLIC], ids=NAMES)
def test_it_is_documented(thing):
    assert inspect.getdoc(thing)
    assert [name for name, member in members(thing) if not inspect.getdoc(member)] == []


@pytest.mark.parametrize("thing", [thing for _, thing in PUBLIC], ids=NAMES)
def test_it_is_typed(thing):
    for name, member in members(thing):
        parameters = inspect.signature(member).parameters
        untyped = [p for p in parameters.values() if p.annotation is p.empty and p.name not in ("self", "cls")]
        assert untyped == [], name
        assert "return" in member.__annotations__, name


def test_type_checkers_are_told():
    assert (Path(fedhv.__file__).parent / "py.typed").exists()
    assert len(PUBLIC) > 80
