"""The hello message to every node and its answer: versions, the node's partition, its examples and its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import ConfigRecord, RecordDict

from fedhv._version import __version__
from fedhv.flower.records import CONFIG, Malformed, config_of, take
from fedhv.problem.labels import Holding
from fedhv.problem.parameters import Layout
from fedhv.support.errors import printable

PROTOCOL = 3
"""The version of the protocol: the meaning of requests and replies, and the clients' computations."""

HELLO = "query.hello"
"""The type of the first message to every node, which requests its partition and version."""

LONGEST_NAME = 64
"""The largest number of characters of a node's name."""


def versions() -> dict[str, Any]:
    """The versions of this side, which every message from the server has."""
    return {"fedhv": __version__, "protocol": PROTOCOL}


def hello() -> RecordDict:
    """The server's first message to a node."""
    return RecordDict({CONFIG: ConfigRecord(versions())})


@dataclass(frozen=True)
class HelloReply:
    """A node's answer to the hello message: its partition, numbers of examples and labels, and its name."""

    partition: int
    holding: Holding
    name: str = ""


def hello_reply(who: HelloReply, layout: Layout, tasks: list[str], units: Sequence[float] = ()) -> RecordDict:
    """The records of a node's answer to the hello message."""
    about: dict[str, Any] = {"partition": who.partition, "tasks": tasks, "parameters": layout.d}
    about["examples"] = who.holding.examples
    if layout.norm != "refuse":
        about["norm"] = layout.norm
    if units:
        about["units"] = list(units)
    if who.name:
        about["name"] = who.name
    if who.holding.labels is not None:
        about["labels"] = list(who.holding.labels)
    return RecordDict({CONFIG: ConfigRecord(versions() | about)})


def check_version(content: RecordDict, them: str) -> None:
    """Raise an error if the two sides have different versions."""
    config = config_of(content)
    found = str(config.get("fedhv")), config.get("protocol")
    if found != (__version__, PROTOCOL):
        raise Malformed(
            f"versions differ: fedhv {__version__} (protocol {PROTOCOL}) here, "
            f"fedhv {found[0]} (protocol {found[1]!r}) on {them}; install the same version on both"
        )


def decode_hello_reply(
    content: RecordDict, layout: Layout, tasks: list[str], units: Sequence[float] = ()
) -> HelloReply:
    """A node's answer to the hello message, after checks of version, tasks, units of losses and model."""
    check_version(content, "the node")
    config = config_of(content)
    if config.get("tasks") != tasks:
        raise Malformed(f"tasks differ: {', '.join(tasks)} here, {config.get('tasks')!r} on the node")
    ours, theirs = list(units) or None, config.get("units")
    if theirs != ours:
        raise Malformed(f"units of losses (`scale`) differ: {ours!r} here, {theirs!r} on the node")
    if config.get("parameters") != layout.d:
        raise Malformed(f"models differ: {layout.d} parameters here, {config.get('parameters')!r} on the node")
    if (norm := config.get("norm", "refuse")) != layout.norm:
        raise Malformed(f"policies for BatchNorm differ: norm = '{layout.norm}' here, {norm!r} on the node")
    examples = take(config, "examples", int)
    if examples < 1:
        raise Malformed(f"`examples` of {examples}")
    partition, name = take(config, "partition", int), printable(str(config.get("name", "")))[:LONGEST_NAME]
    labels: Any = config.get("labels")
    if labels is None:
        return HelloReply(partition, Holding(examples), name)
    if not layout.partial:
        raise Malformed("labels are missing on the node; set `missing_labels` in the Server")
    whole = isinstance(labels, list) and all(isinstance(n, int) and not isinstance(n, bool) for n in labels)
    if not whole or len(labels) != len(tasks) or not all(0 <= n <= examples for n in labels) or not any(labels):
        raise Malformed(f"labels of {labels!r} for {len(tasks)} tasks and {examples} examples")
    return HelloReply(partition, Holding(examples, tuple(labels)), name)
