"""Encodes requests and replies as Flower records, and decodes them. The format does not depend on the request class.

A request's tensors are arrays. Its plain values and small tensors are numbers in a configuration record, and `ask` in
that record is its name. A reply's tensors are arrays, and its small ones are numbers in a metric record. Requests that
train have the message type "train", which Flower's modules expect, all others "train.exchange".

The model is one flat array: Flower transfers every array separately, so one array per layer would cost one network
exchange each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

import fedhv.protocol.requests  # noqa: F401  (the requests that a node knows)
from fedhv.flower.hello import versions
from fedhv.flower.records import (
    ARRAYS,
    CONFIG,
    METRICS,
    Malformed,
    arrays_of,
    config_of,
    metrics_of,
    small_tensor,
    take,
    vector,
)
from fedhv.methods import CLIENT_SIDE
from fedhv.problem.parameters import Layout
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.fields import plain_fields, tensor_fields, tensors_of
from fedhv.protocol.local import LocalTraining
from fedhv.protocol.request import REQUESTS, Reply, Request
from fedhv.protocol.script import Memory
from fedhv.support.errors import InputError
from fedhv.support.imports import import_object

ANSWERED = ("round", "run", "ask")
"""What a reply repeats of the message that it answers."""

TRAIN, EXCHANGE, EVALUATE = "train", "train.exchange", "evaluate"
"""The types of messages: local training, other requests of a method, and evaluation."""

HEADERS, REST = 4096, 65_536
"""The largest number of bytes of a reply besides its numbers: per array, and for all other records together."""


# --- requests ---------------------------------------------------------------------------------------------


def message_type(request: Request) -> str:
    """The type of the message that carries a request."""
    return TRAIN if request.trains else EVALUATE if request.evaluates else EXCHANGE


def encode_request(
    request: Request,
    cohort: Cohort,
    extra: ConfigRecord | None = None,
    run: str = "",
    *,
    partial: bool = False,
    attempt: int = 0,
    dropped: Sequence[int] = (),
) -> RecordDict:
    """A request as records, the same for every client of the cohort; `run` distinguishes runs with the same seed.

    `extra` has values of other modules, such as the clipping norm of Flower's privacy modules. `partial` is set if
    clients may lack labels; then every reply has the client's numbers of labels. `attempt` is the number of the attempt
    at a round, and `dropped` has those that had too few replies: nodes undo what they kept in them.
    """
    config = ConfigRecord({**(extra or {}), **versions(), **_cohort(cohort), "run": run, "ask": type(request).name})
    config["partial"], config["attempt"] = partial, attempt
    if dropped:
        config["dropped"] = list(dropped)
    about = tensor_fields(type(request))
    sent = {name: value for name, value in tensors_of(request).items() if not about[name].known}
    for name in plain_fields(type(request)):
        if (value := getattr(request, name)) is not None:
            config[f"ask.{name}"] = value
    for name, value in sent.items():
        if about[name].small:
            config[f"ask.{name}"] = [float(number) for number in value]
    return RecordDict({ARRAYS: arrays_of({n: v for n, v in sent.items() if not about[n].small}), CONFIG: config})


def decode_cohort(content: RecordDict, client: int) -> Cohort:
    """The round's parameters for a client: round, seed and local training. The cohort contains this client only."""
    config = config_of(content)
    found = {each.name: config.get(f"local.{each.name}") for each in fields(LocalTraining)}
    values: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in found.items() if v is not None}
    try:
        local = LocalTraining(**values)
    except (InputError, TypeError) as error:
        raise Malformed(f"invalid local training ({error})") from None
    return Cohort([client], take(config, "round", int), take(config, "seed", int), local)


def expects_counts(content: RecordDict) -> bool:
    """Whether the server expects the numbers of labels in replies."""
    return bool(config_of(content).get("partial", False))


def request_class(name: str) -> type[Request] | None:
    """The class of a request by its name on the wire; None if it is unknown here."""
    if name in CLIENT_SIDE:  # these methods have requests of their own, which nothing else on a node imports
        import_object(CLIENT_SIDE[name], "method")
    return REQUESTS.get(name)


def decode_request(content: RecordDict, layout: Layout, memory: Memory, device: torch.device | str = "cpu") -> Request:
    """The request of a message. Tensors that the client already has are taken from its memory of this round."""
    config = config_of(content)
    name = take(config, "ask", str)
    kind = request_class(name)
    if kind is None:
        raise Malformed(f"the request '{name}' is unknown; import the module that defines it in the node's app")
    values: dict[str, Any] = {n: config[k] for n in plain_fields(kind) if (k := f"ask.{n}") in config}
    for each, value in values.items():
        if not _plain(value):
            raise Malformed(f"`{each}` of {value!r}")
    about = tensor_fields(kind)
    try:
        shapes = kind.shapes(layout, values)
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed(f"the request '{name}' has invalid fields ({error})") from None
    for each, field in about.items():
        if field.known:
            if each not in memory.round:
                raise Malformed(f"this node no longer has the {each} of this round")
            values[each] = memory.round[each]
        elif field.small:
            if (numbers := config.get(f"ask.{each}")) is not None:
                values[each] = small_tensor(numbers, math.prod(shapes[each]), each)
        elif each in content.array_records.get(ARRAYS, {}):
            values[each] = vector(content, each, shapes[each]).to(device)
    try:
        return kind(**values)
    except (TypeError, InputError) as error:
        raise Malformed(f"the request '{name}' is incomplete ({error})") from None


def _plain(value: Any) -> bool:
    """Whether a value may be a plain field of a request: a finite number, a text or a truth value."""
    return isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))


def _cohort(cohort: Cohort) -> dict[str, Any]:
    local = cohort.local
    return {
        "round": int(cohort.round),
        "seed": int(cohort.seed),
        **{f"local.{name}": list(v) if isinstance(v, tuple) else v for name, v in vars(local).items() if v is not None},
    }


# --- replies ----------------------------------------------------------------------------------------------


def encode_reply(request: Request, reply: Reply, layout: Layout) -> RecordDict:
    """A client's answer as records."""
    small = _small(request)
    sent = request.to_wire(reply, layout)
    metrics = MetricRecord({name: [float(x) for x in value] for name, value in sent.items() if name in small})
    return RecordDict({ARRAYS: arrays_of({n: v for n, v in sent.items() if n not in small}), METRICS: metrics})


def answering(content: RecordDict) -> ConfigRecord:
    """What a reply says about the message that it answers: round, run and request."""
    config = config_of(content)
    return ConfigRecord({name: config[name] for name in ANSWERED})


def check_answer(content: RecordDict, asked: RecordDict) -> None:
    """Refuse a reply that was made for another message, such as one of an earlier round that is sent again."""
    found: Mapping[str, Any] = content.config_records.get(CONFIG, {})
    wanted = config_of(asked)
    for name in ANSWERED:
        if found.get(name) != wanted[name]:
            was, now = (
                int(value) + 1 if isinstance(value, int) else value for value in (found.get(name), wanted[name])
            )
            raise Malformed(f"an answer to {name} {was!r} instead of {now!r}")


def decode_reply(request: Request, content: RecordDict, layout: Layout) -> Reply:
    """A client's reply to this request; raises `Malformed` for invalid records.

    Sizes are checked first: a reply that is too large is neither parsed nor copied.
    """
    check_size(request, content, layout)
    small, found = _small(request), {}
    for name, shape in request.wire_shapes(layout).items():
        if name not in small:
            found[name] = vector(content, name, shape)
    metrics = metrics_of(content) if small else {}
    for name in small:
        if (numbers := metrics.get(name)) is not None:
            found[name] = small_tensor(numbers, math.prod(request.reply_shapes(layout)[name]), name)
    return request.from_wire(found, layout)


def check_size(request: Request, content: RecordDict, layout: Layout) -> None:
    """Refuse a reply with unexpected arrays, or with more bytes than a valid reply can have."""
    small = _small(request)
    expected = {name: shape for name, shape in request.wire_shapes(layout).items() if name not in small}
    for name, record in content.array_records.items():
        for key, array in record.items():
            if name != ARRAYS or key not in expected:
                raise Malformed(f"an unexpected array '{key}' in '{name}'")
            most = 8 * math.prod(expected[key]) + HEADERS  # numbers may have double precision
            if len(array.data) > most:
                raise Malformed(f"{key} of {len(array.data)} bytes instead of at most {most}")
    others: list[Any] = [*content.metric_records.items(), *content.config_records.items()]
    rest = sum(_bytes(value) for name, record in others for value in (name, *record.keys(), *record.values()))
    most = REST + 16 * layout.tasks * len(small)
    if rest > most:
        raise Malformed(f"{rest} bytes of metrics and settings instead of at most {most}")


def _bytes(value: Any) -> int:
    """The approximate number of bytes of a value."""
    if isinstance(value, list | tuple):
        return sum(map(_bytes, value)) if value and isinstance(value[0], str | bytes) else 8 * len(value)
    return len(value) if isinstance(value, str | bytes) else 8


def _small(request: Request) -> set[str]:
    """The tensors of a reply that are sent as numbers."""
    return {name for name, about in tensor_fields(request.reply).items() if about.small}


def serialised_bytes(message: Message) -> int:
    """The bytes of a message as Flower serialises it: arrays, records and metadata."""
    return sum(len(part.deflate()) for part in get_all_nested_objects(message).values())
