"""A digest of code. It changes when the code changes, not when the code is moved or commented.

User functions and classes are followed into the names that they use from their own module. Those of installed
libraries are identified by their names.
"""

from __future__ import annotations

import ast
import dataclasses
import dis
import functools
import hashlib
import inspect
import os
import sys
import sysconfig
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

LOOKUPS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
"""Python's instructions that look up a global name; the latter two are in classes that a function defines."""

PLAIN = (str, bytes, bool, int, float, complex, type(None))


def digest(*things: Any) -> str:
    """A short digest of values, functions, classes, and objects built from them."""
    found = hashlib.blake2b(digest_size=12)
    for thing in things:
        for part in _parts(thing, {}):
            found.update(part.encode())
            found.update(b"\0")
    return found.hexdigest()


@dataclasses.dataclass(frozen=True)
class Pieces:
    """An array that is too large for memory: its type, its shape, and its pieces along the first axis."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    pieces: Iterable[np.ndarray]


def digest_arrays(arrays: Iterable[Any]) -> str:
    """A digest of all elements of some arrays, with their types and shapes. It takes about a second per gigabyte."""
    found = hashlib.blake2b(digest_size=16)
    for each in arrays:
        if isinstance(each, Pieces):
            found.update(f"{each.dtype.str}{each.shape}".encode())
            for piece in each.pieces:
                found.update(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)
            continue
        array = _numbers(each) if _is_tensor(each) else np.asarray(each)
        found.update(f"{array.dtype.str}{array.shape}".encode())
        if array.flags.c_contiguous:
            found.update(array.reshape(-1).view(np.uint8).data)
        else:
            for row in array:  # row by row: a copy of the whole array may not fit into memory
                found.update(np.ascontiguousarray(row).tobytes())
    return found.hexdigest()


def _is_tensor(thing: Any) -> bool:
    """Whether an object is a tensor of torch, which is not imported here."""
    return hasattr(thing, "detach") and hasattr(thing, "numpy")


def _numbers(tensor: Any) -> np.ndarray:
    """A tensor's values; its bytes if NumPy lacks the type, as it lacks bfloat16."""
    values = tensor.detach().cpu()
    try:
        return np.asarray(values)
    except TypeError:
        import torch

        return np.asarray(values.contiguous().reshape(-1).view(torch.uint8))


def _parts(thing: Any, seen: dict[int, Any]) -> Iterator[str]:
    """The texts that represent an object."""
    if isinstance(thing, PLAIN):
        yield repr(thing)
        return
    if id(thing) in seen:
        yield "seen"
        return
    seen[id(thing)] = thing  # keep a reference, so that no other object gets its id
    match thing:
        case Mapping():
            for key, value in sorted(thing.items(), key=lambda pair: repr(pair[0])):
                yield f"key {key!r}"
                yield from _parts(value, seen)
        case list() | tuple():
            yield f"{type(thing).__name__} of {len(thing)}"
            for each in thing:
                yield from _parts(each, seen)
        case functools.partial():
            yield "partial"
            yield from _parts((thing.func, thing.args, thing.keywords), seen)
        case MethodType():
            yield from _parts((thing.__self__, thing.__func__), seen)
        case FunctionType() | type():
            yield from _code(thing, seen)
        case ModuleType():
            yield f"module {thing.__name__}"
        case np.ndarray():
            yield digest_arrays([thing])
        case _ if _is_tensor(thing):
            yield digest_arrays([thing])
        case _ if dataclasses.is_dataclass(thing):
            yield from _code(type(thing), seen)
            yield from _parts({f.name: getattr(thing, f.name) for f in dataclasses.fields(thing)}, seen)
        case _:
            yield from _code(type(thing), seen)
            if getattr(thing, "__dict__", None) and not _installed(type(thing)):
                yield from _parts(thing.__dict__, seen)
            elif callable(thing) and hasattr(thing, "__qualname__"):
                yield f"{getattr(thing, '__module__', '')}.{thing.__qualname__}"


def _code(thing: Any, seen: dict[int, Any]) -> Iterator[str]:
    """A function or class: its name if it is installed, otherwise its source and what the source uses."""
    if _installed(thing):
        yield f"{thing.__module__}.{thing.__qualname__}"
        yield from _closure(thing, seen)
        return
    source = _source(thing)
    yield source if source is not None else "code"
    if isinstance(thing, type):
        for base in thing.__bases__:
            if base is not object:
                yield from _parts(base, seen)
    for function in _functions(thing):
        if source is None:
            yield from _bytecode(function.__code__)
        yield from _closure(function, seen)
        yield from _parts([*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()], seen)
        for name in sorted(_names(function.__code__)):
            if name in function.__globals__:
                used = function.__globals__[name]
                yield f"uses {name}"
                if isinstance(used, (*PLAIN, tuple, FunctionType, type, functools.partial)):
                    yield from _parts(used, seen)


def _closure(thing: Any, seen: dict[int, Any]) -> Iterator[str]:
    """The variables in a function's closure."""
    for cell in getattr(thing, "__closure__", None) or ():
        try:
            yield from _parts(cell.cell_contents, seen)
        except ValueError:  # not set yet
            yield "empty"


def _functions(thing: Any) -> list[FunctionType]:
    """The functions of a class, or the function itself."""
    if isinstance(thing, FunctionType):
        return [thing]
    found = []
    for value in vars(thing).values():
        inner = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        inner = inspect.unwrap(inner) if callable(inner) else inner
        if isinstance(inner, FunctionType) and inner.__module__ == thing.__module__:
            found.append(inner)
    return found


_SOURCES: WeakKeyDictionary[Any, tuple[tuple[int, int], str | None]] = WeakKeyDictionary()
"""Sources that were found, with the time and size of their file: Python parses a whole module to find a class in it."""


def _source(thing: Any) -> str | None:
    """The source of a function or class, found again only if its file has changed."""
    try:
        file = os.stat(inspect.getsourcefile(thing) or "")
        state = file.st_mtime_ns, file.st_size
        kept = _SOURCES.get(thing)
        if kept is None or kept[0] != state:
            kept = _SOURCES[thing] = state, _found_source(thing)
    except (OSError, TypeError):  # no file, as in an interactive session, or a class that is no key
        return _found_source(thing)
    return kept[1]


def _found_source(thing: Any) -> str | None:
    """The source without comments, docstrings and layout. None if there is no source, as in an interactive session."""
    if thing.__name__ == "<lambda>":
        return None  # its lines may contain other lambdas
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
    except (OSError, TypeError, SyntaxError):  # a lambda inside a larger expression may not parse by itself
        return None
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef) and isinstance(body, list):
            said = body[0].value if body and isinstance(body[0], ast.Expr) else None
            if isinstance(said, ast.Constant) and isinstance(said.value, str):
                node.body = body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def _bytecode(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _bytecode(constant)
        else:
            yield repr(constant)


def _names(code: CodeType) -> set[str]:
    """The global names that a function and its inner functions look up; attributes of the same name are others."""
    own = {each.argval for each in dis.get_instructions(code) if each.opname in LOOKUPS}
    return own.union(*(_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)))


@functools.cache
def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def _installed(thing: Any) -> bool:
    """Whether code belongs to an installed library or to this package; its version identifies it."""
    name = getattr(thing, "__module__", None) or ""
    if name.split(".")[0] in ("fedhv", "builtins", "torch", "numpy"):
        return True
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is not None and file.startswith(_library_folders())
