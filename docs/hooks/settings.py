"""The page of the settings' keys, read off the dataclasses that check them."""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal

from fedhv.methods import CLIENT_SIDE, METHODS, RULES, method_class
from fedhv.methods.rules.base import LossRule
from fedhv.runs.config import Setting, shipped_settings

INTRODUCTION = """# Settings

A setting is a TOML file: a benchmark, how its examples are divided, how clients train, and every method's
hyper-parameters. `fedhv show NAME` prints one with all its values; `--set section.key=value` and, from Python,
`override=["section.key=value"]` change single keys. An unknown key is an error that names the nearest known one.

"""
WORDS = {int: "whole number", float: "number", str: "text", bool: "yes or no"}
READERS = {
    "": "`run`, `compare`, `calibrate`, `tune`, `front`, `show` and `bench`; on Flower, the server and the nodes.",
    "federation": "the division of examples, the choice of every cohort, and the means over clients. On Flower the "
    "nodes are the clients, and the server reads the rest.",
    "training": "clients, on every engine and on Flower's nodes; `rounds` and `scale` also by the round loop.",
    "training.schedule": "clients, in every round.",
    "evaluation": "the round loop, after a round; on Flower, the server.",
    "calibration": "`fedhv calibrate`, and `run` and `compare` before methods with a reference.",
    "server": "the server: every reply, before it enters a mean, and every round, before it is checkpointed.",
    "server.optimiser": "the server, after the method's round.",
    "faults": "the simulation. A federation on Flower has faults of its own.",
    "record": "the writer of the run's folder.",
    "references": "methods with a reference, if `--reference NAME` names one.",
    "preferences": "methods that take preferences; for others they are an error.",
    "baselines": "`compare --baselines`.",
}
"""Who reads the keys of a section."""


def page() -> str:
    """Every key with its type, its default and what it means."""
    return INTRODUCTION + "\n".join([*_section(Setting, ""), *_methods(), *_example()])


def _section(section: type, prefix: str) -> Iterator[str]:
    meanings, hints = inherited_attributes(section), typing.get_type_hints(section)
    below = [f for f in dataclasses.fields(section) if dataclasses.is_dataclass(hints[f.name])]
    title = f"`[{prefix}]`" if prefix else "At the top"
    yield f"## {title}\n\n{_first_paragraph(section)}\n\n*Read by* {READERS[prefix]}\n"
    if rows := [f for f in dataclasses.fields(section) if f not in below and not _is_table(hints[f.name])]:
        yield _table(rows, hints, meanings)
    for f in below:
        yield from _section(hints[f.name], f"{prefix}.{f.name}" if prefix else f.name)
    for f in dataclasses.fields(section):
        if _is_table(hints[f.name]) and f.name != "methods":
            yield f"## `[{f.name}]`\n\n{meanings.get(f.name, '')}\n\n*Read by* {READERS[f.name]}\n"


def _methods() -> Iterator[str]:
    yield "## `[methods.NAME]`\n\nThe hyper-parameters of each method; a method of your own has its fields here too.\n"
    yield "*Read by* the method of that name; `local_lr` also by its clients.\n"
    for name, method in METHODS.items():
        yield from _method(name, method)
    yield "### Every loss-only rule\n\nThe keys that all rules below have. A rule's own keys follow under its name.\n"
    yield _table(*_fields(LossRule))
    for name in RULES:
        yield from _method(name, method_class(name), without=LossRule)
    for name in CLIENT_SIDE:
        yield from _method(name, method_class(name))
    yield (
        '### `[methods."torchjd:NAME"]`\n\nThe numeric arguments of TorchJD\'s class, and the keys of the method whose '
        "requests it uses; `fedhv list methods` names them.\n"
    )


def _method(name: str, method: type, without: type | None = None) -> Iterator[str]:
    """A method's keys, or those that another class does not have."""
    known = {f.name for f in dataclasses.fields(without)} if without else set()
    fields, hints, meanings = _fields(method)
    yield f"### `[methods.{name}]`\n\n{_first_paragraph(method)}\n"
    if own := [f for f in fields if f.name not in known]:
        yield _table(own, hints, meanings)


def _fields(of: type) -> tuple[list[dataclasses.Field[Any]], dict[str, Any], dict[str, str]]:
    return [f for f in dataclasses.fields(of) if f.init], typing.get_type_hints(of), inherited_attributes(of)


def _example() -> Iterator[str]:
    text = shipped_settings()["digits"].read_text(encoding="utf-8")
    yield f"## A whole one\n\n`digits`, as it is shipped:\n\n```toml\n{text}```\n"


def _table(fields: list[dataclasses.Field[Any]], hints: dict[str, Any], meanings: dict[str, str]) -> str:
    rows = (f"| `{f.name}` | {_type(hints[f.name])} | {_default(f)} | {meanings.get(f.name, '')} |" for f in fields)
    return "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows]) + "\n"


def _default(f: dataclasses.Field[Any]) -> str:
    if f.default_factory is not dataclasses.MISSING:
        value = f.default_factory()
    elif f.default is dataclasses.MISSING:
        return "needed"
    else:
        value = f.default
    if value is None or value in ("", (), {}):
        return ""
    if isinstance(value, tuple):
        return f"`{list(value)}`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _type(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return ", ".join(f'`"{value}"`' for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(each) for each in arguments if each is not type(None))
    if origin is tuple:
        return f"list of {_type(arguments[0])}s"
    return WORDS.get(hint, str(getattr(hint, "__name__", hint)))


def _is_table(hint: Any) -> bool:
    return typing.get_origin(hint) is dict


def _first_paragraph(of: type) -> str:
    return " ".join(inspect.getdoc(of).split("\n\n")[0].split()) if of.__doc__ else ""


def inherited_attributes(of: type) -> dict[str, str]:
    """The same for a class with its bases."""
    meanings: dict[str, str] = {}
    for each in reversed(of.__mro__):
        meanings |= attributes(each)
    return meanings


def attributes(of: type) -> dict[str, str]:
    """What the section "Attributes:" of a docstring says of each name."""
    text = inspect.cleandoc(of.__doc__ or "")
    _, found, section = text.partition("Attributes:\n")
    meanings: dict[str, str] = {}
    name = ""
    for line in section.splitlines() if found else ():
        if line.strip() and not line.startswith("    "):
            break
        if entry := re.match(r"    (\w+): (.*)", line):
            name = entry[1]
            meanings[name] = entry[2].strip()
        elif name and line.strip():
            meanings[name] += f" {line.strip()}"
    return meanings
