"""Fields and defaults of a dataclass, read from its source, so that commands can show them without heavy imports."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PLAIN = {"ABC", "object"}
"""Bases that have no fields."""


def declared(place: str) -> dict[str, Any] | None:
    """The fields of the dataclass at "package.module:Class" with their defaults. The module is not imported.

    None if a default is computed, or if a base class is neither defined nor imported in that module.
    """
    module, _, name = place.partition(":")
    spec = find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    found = next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name), None)
    if found is None:
        return None
    fields: dict[str, Any] = {}
    for base in found.bases:
        inherited = _of_base(base, module, tree)
        if inherited is None:
            return None
        fields |= inherited
    for node in found.body:
        if not isinstance(node, ast.AnnAssign) or ast.unparse(node.annotation).startswith("ClassVar"):
            continue
        if not isinstance(node.target, ast.Name) or node.value is None:
            return None
        try:
            fields[node.target.id] = ast.literal_eval(node.value)
        except ValueError:
            return None
    return fields


def _of_base(base: ast.expr, module: str, tree: ast.Module) -> dict[str, Any] | None:
    """The fields of a base class that the module defines or imports by name."""
    if not isinstance(base, ast.Name):
        return None
    if base.id in PLAIN:
        return {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and any(name.name == base.id for name in node.names):
            module = node.module
    return declared(f"{module}:{base.id}")
