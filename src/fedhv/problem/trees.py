"""Inputs of one or several parts: a tensor, or a (nested) tuple or dict of tensors with a common first axis.

A tuple's parts are the model's positional arguments, a dict's parts its keyword arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Inputs: TypeAlias = Any
"""A tensor, or a tuple or a dict of inputs; stored inputs may also be of `fedhv.problem.stored`."""


def tree_map(function: Callable[[Any], Any], inputs: Inputs) -> Inputs:
    """Inputs of the same structure, with the function applied to every part."""
    if isinstance(inputs, dict):
        return {name: tree_map(function, each) for name, each in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(tree_map(function, each) for each in inputs)
    return function(inputs)


def leaves(inputs: Inputs) -> list[Any]:
    """The parts, in the order of the structure."""
    if isinstance(inputs, dict):
        inputs = tuple(inputs.values())
    return [leaf for each in inputs for leaf in leaves(each)] if isinstance(inputs, tuple) else [inputs]


def arranged(inputs: Inputs, like: Inputs) -> Inputs:
    """Inputs of the same structure as `like`, with the keys of dicts in the same order: `leaves` then correspond."""
    if isinstance(inputs, dict):
        return {name: arranged(inputs[name], each) for name, each in like.items()}
    if isinstance(inputs, tuple):
        return tuple(arranged(*pair) for pair in zip(inputs, like, strict=True))
    return inputs


def structure(inputs: Inputs) -> Any:
    """The structure of inputs; equal structures have corresponding parts."""
    if isinstance(inputs, dict):
        return {name: structure(each) for name, each in inputs.items()}
    return tuple(structure(each) for each in inputs) if isinstance(inputs, tuple) else None


def rebuild(inputs: Inputs, parts: list[Any]) -> Inputs:
    """Inputs of the same structure with other parts, given in the order of `leaves`."""
    given = iter(parts)
    return tree_map(lambda _: next(given), inputs)


def arguments(inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The positional and the keyword arguments with which a model is called."""
    if isinstance(inputs, dict):
        return (), inputs
    return (inputs if isinstance(inputs, tuple) else (inputs,)), {}


def describe(inputs: Inputs) -> str:
    """Shapes and types, for errors."""
    if isinstance(inputs, dict):
        return "{" + ", ".join(f"{name}: {describe(each)}" for name, each in inputs.items()) + "}"
    if isinstance(inputs, tuple):
        return "(" + ", ".join(map(describe, inputs)) + ")"
    return f"{tuple(inputs.shape)} of {inputs.dtype}"
