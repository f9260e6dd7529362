"""The classes of TorchJD's rules, by names such as "torchjd:UPGrad"; made from the rules' constructors."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from typing import Any

from fedhv.methods.base import Method
from fedhv.methods.torchjd import OnGram, OnReports, OnUpdates
from fedhv.support.errors import InputError, unknown

PREFIX = "torchjd:"
OURS = {"DWA": "dwa", "FAMO": "famo", "IMTLL": "imtl-l", "UW": "uncertainty"}
"""Rules of TorchJD that keep a state, and this package's methods of the same kind, whose state is in checkpoints."""
VECTORS = ("pref_vector", "weights")
"""The constructors' names of a vector of preferences."""


def torchjd_method(name: str) -> type[Method]:
    """The method class for a name such as "torchjd:UPGrad"."""
    rules = _rules()
    rule = name.removeprefix(PREFIX)
    if rule not in rules:
        raise unknown("rule of TorchJD", rule, [each for each in rules if _lacks(rules[each]) is None])
    lack = _lacks(rules[rule])
    if lack is not None:
        hint = f" Use the method '{OURS[rule]}'." if rule in OURS else ""
        raise InputError(f"TorchJD's {rule} is not available as a method: {lack}.{hint}")
    return _class(rule)


def torchjd_names() -> list[str]:
    """The names of all rules of TorchJD that can be methods; empty if TorchJD is not installed."""
    try:
        rules = _rules()
    except InputError:
        return []
    return [f"{PREFIX}{name}" for name, rule in rules.items() if _lacks(rule) is None]


def _reduced(method: Any) -> tuple[Any, ...]:
    """How a method is sent to another process: by its class's name, because an import does not find the class."""
    values = {each.name: getattr(method, each.name) for each in dataclasses.fields(method) if each.init}
    return _again, (method.name, values)


def _again(name: str, values: Mapping[str, Any]) -> Method:
    return torchjd_method(name)(**values)


@cache
def _rules() -> dict[str, type]:
    """TorchJD's rules by name, aggregators and weightings before scalarizers."""
    try:
        from torchjd import aggregation, scalarization
    except ImportError:
        raise InputError("This method needs TorchJD. Install it with: pip install 'fedhv[torchjd]'.") from None
    found = {name: getattr(aggregation, name) for name in aggregation.__all__}
    found = {name: getattr(scalarization, name) for name in scalarization.__all__} | found
    return {name: rule for name, rule in sorted(found.items()) if not inspect.isabstract(rule)}


def _lacks(rule: type) -> str | None:
    """Why a rule cannot be a method; None if it can."""
    from torchjd import aggregation

    if hasattr(rule, "reset"):
        return "it keeps a state between calls that a checkpoint could not hold"
    if issubclass(rule, aggregation.Weighting):
        if rule.__name__.removesuffix("Weighting") in ("PCGrad", "Random"):
            return "it draws at random; use the aggregator"
        if "gramian" not in inspect.signature(rule.forward).parameters:
            return "it does not weigh by a Gram matrix; use the aggregator"
    for each in _parameters(rule):
        if each.default is each.empty and each.name not in VECTORS and not _number(each):
            return f"its `{each.name}` is no number"
    return None


@cache
def _class(name: str) -> type[Method]:
    """The method's class, a dataclass with the constructor's numbers as fields."""
    from torchjd import aggregation

    rule = _rules()[name]
    base: type[Method] = OnReports
    if issubclass(rule, aggregation.Weighting):
        base = OnGram
    elif issubclass(rule, aggregation.Aggregator):
        base = OnUpdates
    parameters = _parameters(rule)
    vector = next((each for each in parameters if each.name in VECTORS), None)
    numbers = [each for each in parameters if _number(each)]
    fields: list[Any] = [
        (each.name, Any) if each.default is each.empty else (each.name, Any, field(default=each.default))
        for each in numbers
    ]
    if vector is not None and base is not OnReports:
        fields.append(("preferences", Any, field(default=None)))
    if vector is None and base is OnReports:  # its rule would ignore the preferences of a loss-only method
        fields.append(("preferences", Any, field(default=None, init=False)))
    namespace = {
        "__doc__": f"TorchJD's {name}. {inspect.getdoc(base) or ''}",
        "__module__": base.__module__,  # a run's fingerprint has the name of its method's class
        "__reduce__": _reduced,
        "name": PREFIX + name,
        "rule": rule,
        "options": tuple(each.name for each in numbers),
        "vector": None if vector is None else vector.name,
        "needs_vector": vector is not None and vector.default is vector.empty,
    }
    cls: type[Method] = dataclasses.make_dataclass(
        f"TorchJD{name}", fields, bases=(base,), frozen=True, kw_only=True, namespace=namespace
    )
    return cls


def _parameters(rule: type) -> list[inspect.Parameter]:
    return list(inspect.signature(rule).parameters.values())


def _number(parameter: inspect.Parameter) -> bool:
    """Whether a parameter is a number or a text, which a TOML file can contain."""
    if parameter.default is not parameter.empty and parameter.default is not None:
        return isinstance(parameter.default, int | float | str)
    kind = parameter.annotation
    words = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
    return words.split(" ")[0] in ("int", "float")
