"""Frozen dataclasses to TOML and back. The error for an unknown key suggests the nearest known one."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin

from fedhv.support.errors import InputError, unknown
from fedhv.support.numbers import is_number

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


class TOMLError(ValueError):
    """Invalid TOML, or TOML beyond the limits on size and depth."""


LARGEST = 16_000_000
"""The largest size in bytes. A setting that lists a million clients is smaller."""

DEEPEST = 32
"""The largest number of parts of a key. Python's parser takes quadratic time."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_PART = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')"""
_DEEP_KEY = re.compile(rf"(?<![A-Za-z0-9_-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{DEEPEST}}}")


def read(path: Path) -> dict[str, Any]:
    """A TOML file as nested tables."""
    try:
        if path.stat().st_size > LARGEST:
            raise InputError(f"{path}: expected a TOML file of at most {LARGEST} bytes. Found a larger file.")
        return read_text(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} could not be read: {error.strerror or error}.") from None
    except (UnicodeDecodeError, TOMLError) as error:
        raise InputError(f"{path} is not valid TOML: {error}.") from None


def read_text(text: str) -> dict[str, Any]:
    """TOML text as nested tables. Raises `TOMLError` if it is invalid."""
    if _DEEP_KEY.search(text):
        raise TOMLError(f"a key of more than {DEEPEST} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise TOMLError("nested too deeply") from None
    except ValueError as error:  # also numbers with more digits than Python converts
        raise TOMLError(str(error)) from None


def write(tables: Mapping[str, Any], comment: str = "") -> str:
    """TOML text of nested tables. None is left out, because TOML has no such value."""
    lines = [f"# {line}" for line in comment.splitlines()]
    _write_table(tables, (), lines)
    return "\n".join(lines).strip() + "\n"


def read_back(tables: Mapping[str, Any]) -> dict[str, Any]:
    """`read_text(write(tables))`, without the text, which takes Python's parser milliseconds."""
    found: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            table = read_back(value)
            if table or not value:  # a table that has nothing but None is not written
                found[key] = table
        elif value is not None:
            found[key] = _value_back(value)
    return found


def _value_back(value: Any) -> Any:
    """A value as it is read after it was written; `TypeError` where it cannot be written."""
    match value:
        case bool():
            return value
        case int():
            return int(value)
        case float():
            return float(value)
        case str():
            return str(value)
        case list() | tuple():
            return [_value_back(each) for each in value]
    raise _no_place(value)


def _write_table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    plain = {k: v for k, v in table.items() if v is not None and not isinstance(v, Mapping)}
    if path and (plain or not table):
        lines += ["", f"[{'.'.join(_key(part) for part in path)}]"]
    lines += [f"{_key(key)} = {value_text(value)}" for key, value in plain.items()]
    for key, value in table.items():
        if isinstance(value, Mapping):
            _write_table(value, (*path, key), lines)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else value_text(key)


def value_text(value: Any) -> str:
    """A number, text or list as TOML writes it; `TypeError` for anything else."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return repr(int(value))  # NumPy's numbers have another repr
        case float():
            return repr(float(value))
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list() | tuple():
            return f"[{', '.join(value_text(v) for v in value)}]"
    raise _no_place(value)


def _no_place(value: Any) -> TypeError:
    return TypeError(f"{type(value).__name__} has no place in a TOML file")


def as_tables(value: Any) -> dict[str, Any]:
    """A dataclass as nested tables."""
    return {
        f.name: as_tables(v) if dataclasses.is_dataclass(v := getattr(value, f.name)) else v
        for f in dataclasses.fields(value)
    }


@functools.cache
def type_hints(cls: type) -> dict[str, Any]:
    """The types of a dataclass's fields; Python evaluates them anew at every call."""
    return typing.get_type_hints(cls)


def build(cls: type[T], table: Mapping[str, Any], where: str = "") -> T:
    """A dataclass from nested tables. Every key and type is checked."""
    hints = type_hints(cls)
    known = {f.name: f for f in dataclasses.fields(cls)}
    values = {}
    for key, value in table.items():
        if key not in known:
            tables = [name for name in known if key in getattr(hints[name], "__dataclass_fields__", ())]
            if tables:  # the key without its section
                meant = " or ".join(f"'{where}{name}.{key}'" for name in tables)
                raise InputError(f"Unknown key '{where}{key}'. Did you mean {meant}?")
            raise unknown("key", key, known, prefix=where)
        values[key] = _convert(hints[key], value, f"{where}{key}")
    for name, f in known.items():
        if name not in values and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            if type(None) not in get_args(hints[name]):
                raise InputError(f"The key `{where}{name}` is missing.")
            values[name] = None
    return cls(**values)


def _convert(hint: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return build(typing.cast(type, hint), value, f"{where}.")
    origin, options = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        for option in options:
            if dataclasses.is_dataclass(option) and isinstance(value, Mapping):
                return _convert(option, value, where)  # its own error says what is wrong in the table
            try:
                return _convert(option, value, where)
            except InputError:
                continue
    elif origin is Literal:
        if value in options:
            return value
    elif hint is Any or (hint is type(None) and value is None):
        return value
    elif hint is float and is_number(value):
        return float(value)
    elif hint in (int, str, bool) and type(value) is hint:
        return value
    elif origin is tuple and isinstance(value, list | tuple):
        return tuple(_convert(options[0], v, f"{where}[{i}]") for i, v in enumerate(value))
    elif origin is dict and isinstance(value, Mapping):
        return {str(k): _convert(options[1], v, f"{where}.{k}") for k, v in value.items()}
    raise InputError(f"`{where}` should be {_describe(hint)}. Found {value!r}.")


def _describe(hint: Any) -> str:
    origin, options = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_describe(option) for option in options if option is not type(None))
    if origin is Literal:
        return " or ".join(repr(option) for option in options)
    if origin is tuple:
        return f"a list, each {_describe(options[0])}"
    if origin is dict or dataclasses.is_dataclass(hint):
        return "a table"
    return {int: "a whole number", float: "a number", str: "text", bool: "true or false"}.get(hint, str(hint))
