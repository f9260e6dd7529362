"""Operators of this package, as torch knows its own: opaque to the compiler, with a rule for `vmap`.

`torch.library.custom_op` does the same, but its first call imports torch's compiler, which takes seconds and which a
run that is not compiled does not need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar, cast

import torch

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Function = TypeVar("Function", bound=Callable[..., Any])

NAMESPACE = "fedhv"
_LIBRARY: Any = cast("Any", torch.library).Library(NAMESPACE, "DEF")  # torch has no types here


class Operator(Generic[Arguments, Result]):
    """A function that torch calls by name; it must return new tensors and change none."""

    def __init__(self, name: str, function: Callable[Arguments, Result], devices: str) -> None:
        self._name, self.__doc__ = name, function.__doc__
        _LIBRARY.define(name + torch.library.infer_schema(function, mutates_args=()))
        _LIBRARY.impl(name, function, devices)
        self._operator = getattr(getattr(torch.ops, NAMESPACE), name).default

    def __call__(self, *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        """What the function returns."""
        result: Result = self._operator(*arguments, **named)
        return result

    def register_kernel(self, device: str) -> Callable[[Function], Function]:
        """Define the operator on another type of device."""

        def register(function: Function) -> Function:
            _LIBRARY.impl(self._name, function, device.upper())
            return function

        return register

    def register_fake(self, function: Function) -> Function:
        """Tell the compiler the results' shapes and strides."""
        torch.library.register_fake(f"{NAMESPACE}::{self._name}", function, lib=_LIBRARY)
        return function

    def register_vmap(self, function: Function) -> Function:
        """Define the operator for mapped calls, as `torch.library.register_vmap` wants it."""
        torch.library.register_vmap(f"{NAMESPACE}::{self._name}", function, lib=_LIBRARY)
        return function


def operator(
    name: str, devices: str = "CompositeExplicitAutograd"
) -> Callable[[Callable[Arguments, Result]], Operator[Arguments, Result]]:
    """Make a function an operator, on all types of devices unless one is named."""
    return lambda function: Operator(name, function, devices)
