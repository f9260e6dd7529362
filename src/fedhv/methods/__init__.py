"""The methods, one file each, their parts, and the rules that compute task weights."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedhv.methods.rules import RULES
from fedhv.support.errors import InputError, unknown
from fedhv.support.imports import import_object
from fedhv.support.lazy import Registry, exports

if TYPE_CHECKING:
    from fedhv.methods.base import Conversation, Method, State, drive
    from fedhv.methods.fedcmoo import FedCMOO
    from fedhv.methods.fedhv import FedHV
    from fedhv.methods.fedprox import FedProx
    from fedhv.methods.fsmgda import FSMGDA
    from fedhv.methods.scaffold import SCAFFOLD
    from fedhv.methods.uniform import Uniform
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "fedhv.methods.base": ["Conversation", "Method", "State", "drive"],
            "fedhv.methods.fedcmoo": ["FedCMOO"],
            "fedhv.methods.fedhv": ["FedHV"],
            "fedhv.methods.fedprox": ["FedProx"],
            "fedhv.methods.fsmgda": ["FSMGDA"],
            "fedhv.methods.scaffold": ["SCAFFOLD"],
            "fedhv.methods.uniform": ["Uniform"],
        },
    )

METHODS: Registry[type[Method]] = Registry(
    {
        "fedhv": "fedhv.methods.fedhv:FedHV",
        "uniform": "fedhv.methods.uniform:Uniform",
        "fsmgda": "fedhv.methods.fsmgda:FSMGDA",
        "fedcmoo": "fedhv.methods.fedcmoo:FedCMOO",
    }
)
"""The four methods of the paper, which `fedhv compare` compares by default; others are in `RULES` and `CLIENT_SIDE`.

A class is imported when it is looked up. The names are the classes' `name`.
"""

CLIENT_SIDE: dict[str, str] = {
    "fedprox": "fedhv.methods.fedprox:FedProx",
    "scaffold": "fedhv.methods.scaffold:SCAFFOLD",
}
"""Methods that change local training, with uniform weights, and the location of each."""

__all__ = [
    "CLIENT_SIDE",
    "FSMGDA",
    "METHODS",
    "RULES",
    "SCAFFOLD",
    "Conversation",
    "FedCMOO",
    "FedHV",
    "FedProx",
    "Method",
    "State",
    "Uniform",
    "drive",
    "make_method",
    "method_class",
    "method_place",
    "required",
]


def method_class(name: str) -> type[Method]:
    """The class of a method by its name, or of a user's method as "package.module:Class"."""
    if name in METHODS:
        return METHODS[name]
    if name.startswith("torchjd:"):
        cls: type[Method] = import_object("fedhv.methods.torchjd_classes:torchjd_method", "method")(name)
        return cls
    places = RULES | CLIENT_SIDE
    if ":" not in name and name not in places:
        raise unknown("method", name, [*METHODS, *places], hint="A method of your own is named 'package.module:Class'.")
    from fedhv.methods.base import Method

    found = import_object(places.get(name, name), "method")
    if not (inspect.isclass(found) and issubclass(found, Method)):
        raise InputError(f"'{name}' should be a subclass of fedhv.Method. Found {found!r}.")
    return found


def method_place(name: str) -> str | None:
    """The location of a method of this package, as "package.module:Class"; None for any other name."""
    return METHODS.places.get(name) or RULES.get(name) or CLIENT_SIDE.get(name)


def make_method(name: str, parameters: Mapping[str, Any] | None = None) -> Method:
    """A method with its hyper-parameters. The error for an unknown one suggests the nearest known name."""
    cls, given = method_class(name), dict(parameters or {})
    known = [f.name for f in dataclasses.fields(cls) if f.init]
    for key in given:
        if key not in known:
            raise unknown(f"hyper-parameter of method '{name}'", key, known)
    lacking = [key for key in required(cls) if key not in given]
    if lacking:
        keys = " and ".join(f"`{key}`" for key in lacking)
        raise InputError(
            f"Method '{name}' has no default for {keys}. Give a value, for example with "
            f"--set methods.{name}.{lacking[0]}=VALUE."
        )
    try:
        return cls(**given)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"Method '{name}' could not be made: {error}.") from None


def required(cls: type[Method]) -> list[str]:
    """The hyper-parameters of a method that have no default."""
    return [
        each.name
        for each in dataclasses.fields(cls)
        if each.init and each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
    ]
