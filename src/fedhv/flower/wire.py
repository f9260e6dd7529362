"""Encodes requests and replies as Flower records, and decodes them. The format does not depend on the request class.

A request's tensors are arrays. Its plain values and small tensors are numbers in a configuration record, and `ask` in
that record is its name. A reply's tensors are arrays, and its small ones are numbers in a metric record. Requests that
train have the message type "train", which Flower's modules expect, all others "train.exchange".

The model is one flat array: Flower transfers every array separately, so one array per layer would cost one network
exchange each.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.constant import SType
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from torch import Tensor

import fedhv.protocol.requests  # noqa: F401  (the requests that a node knows)
from fedhv._version import __version__
from fedhv.methods import CLIENT_SIDE
from fedhv.problem.labels import Holding
from fedhv.problem.parameters import Layout
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.fields import plain_fields, tensor_fields, tensors_of
from fedhv.protocol.local import LocalTraining
from fedhv.protocol.request import REQUESTS, Reply, Request
from fedhv.protocol.script import Memory
from fedhv.support.errors import InputError, printable
from fedhv.support.imports import import_object

PROTOCOL = 3
"""The version of the protocol: the meaning of requests and replies, and the clients' computations."""

ANSWERED = ("round", "run", "ask")
"""What a reply repeats of the message that it answers."""

HELLO = "query.hello"
"""The type of the first message to every node, which requests its partition and version."""

TRAIN, EXCHANGE, EVALUATE = "train", "train.exchange", "evaluate"
"""The types of messages: local training, other requests of a method, and evaluation."""

ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"

LONGEST_ERROR = 400
"""The largest number of characters of an error text about a record."""

HEADERS, REST = 4096, 65_536
"""The largest number of bytes of a reply besides its numbers: per array, and for all other records together."""

LONGEST_NAME = 64
"""The largest number of characters of a node's name."""


class Malformed(Exception):
    """A record with invalid content; the text describes the error.

    Parts of the text may come from another machine. Terminals and histories show it as one short printable line.
    """

    def __str__(self) -> str:
        """The text in one line."""
        return printable(super().__str__())[:LONGEST_ERROR]


# --- requests ---------------------------------------------------------------------------------------------


def message_type(request: Request) -> str:
    """The type of the message that carries a request."""
    return TRAIN if request.trains else EVALUATE if request.evaluates else EXCHANGE


def encode_request(
    request: Request, cohort: Cohort, extra: ConfigRecord | None = None, run: str = "", *, partial: bool = False
) -> RecordDict:
    """A request as records, the same for every client of the cohort; `run` distinguishes runs with the same seed.

    `extra` has values of other modules, such as the clipping norm of Flower's privacy modules. `partial` is set if
    clients may lack labels; then every reply has the client's numbers of labels.
    """
    config = ConfigRecord({**(extra or {}), **_versions(), **_cohort(cohort), "run": run, "ask": type(request).name})
    config["partial"] = partial
    about = tensor_fields(type(request))
    sent = {name: value for name, value in tensors_of(request).items() if not about[name].known}
    for name in plain_fields(type(request)):
        if (value := getattr(request, name)) is not None:
            config[f"ask.{name}"] = value
    for name, value in sent.items():
        if about[name].small:
            config[f"ask.{name}"] = [float(number) for number in value]
    return RecordDict({ARRAYS: _arrays({n: v for n, v in sent.items() if not about[n].small}), CONFIG: config})


def decode_cohort(content: RecordDict, client: int) -> Cohort:
    """The round's parameters for a client: round, seed and local training. The cohort contains this client only."""
    config = _config(content)
    found = {each.name: config.get(f"local.{each.name}") for each in fields(LocalTraining)}
    values: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in found.items() if v is not None}
    try:
        local = LocalTraining(**values)
    except (InputError, TypeError) as error:
        raise Malformed(f"invalid local training ({error})") from None
    return Cohort([client], _take(config, "round", int), _take(config, "seed", int), local)


def expects_counts(content: RecordDict) -> bool:
    """Whether the server expects the numbers of labels in replies."""
    return bool(_config(content).get("partial", False))


def request_class(name: str) -> type[Request] | None:
    """The class of a request by its name on the wire; None if it is unknown here."""
    if name in CLIENT_SIDE:  # these methods have requests of their own, which nothing else on a node imports
        import_object(CLIENT_SIDE[name], "method")
    return REQUESTS.get(name)


def decode_request(content: RecordDict, layout: Layout, memory: Memory, device: torch.device | str = "cpu") -> Request:
    """The request of a message. Tensors that the client already has are taken from its memory of this round."""
    config = _config(content)
    name = _take(config, "ask", str)
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
                values[each] = _numbers(numbers, math.prod(shapes[each]), each)
        elif each in content.array_records.get(ARRAYS, {}):
            values[each] = _vector(content, each, shapes[each]).to(device)
    try:
        return kind(**values)
    except (TypeError, InputError) as error:
        raise Malformed(f"the request '{name}' is incomplete ({error})") from None


def _plain(value: Any) -> bool:
    """Whether a value may be a plain field of a request: a finite number, a text or a truth value."""
    return isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))


# --- replies ----------------------------------------------------------------------------------------------


def encode_reply(request: Request, reply: Reply, layout: Layout) -> RecordDict:
    """A client's answer as records."""
    small = _small(request)
    sent = request.to_wire(reply, layout)
    metrics = MetricRecord({name: [float(x) for x in value] for name, value in sent.items() if name in small})
    return RecordDict({ARRAYS: _arrays({n: v for n, v in sent.items() if n not in small}), METRICS: metrics})


def answering(content: RecordDict) -> ConfigRecord:
    """What a reply says about the message that it answers: round, run and request."""
    config = _config(content)
    return ConfigRecord({name: config[name] for name in ANSWERED})


def check_answer(content: RecordDict, asked: RecordDict) -> None:
    """Refuse a reply that was made for another message, such as one of an earlier round that is sent again."""
    found: Mapping[str, Any] = content.config_records.get(CONFIG, {})
    wanted = _config(asked)
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
            found[name] = _vector(content, name, shape)
    metrics = _metrics(content) if small else {}
    for name in small:
        if (numbers := metrics.get(name)) is not None:
            found[name] = _numbers(numbers, math.prod(request.reply_shapes(layout)[name]), name)
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


# --- what a client keeps ------------------------------------------------------------------------------------


KEPT = "fedhv-kept"
"""Records of a node's memory in Flower's node state, until the round or the run ends."""


def load_memory(state: RecordDict, content: RecordDict, cohort: Cohort, device: torch.device | str = "cpu") -> Memory:
    """The node's memory of the round and run of a message."""
    memory = Memory()
    for scope, mark in _marks(content, cohort).items():
        name = f"{KEPT}-{scope}"
        if name in state.array_records and dict(state.config_records[f"{name}-mark"]) == mark:
            kept = {key: torch.from_numpy(array.numpy()).to(device) for key, array in state.array_records[name].items()}
            getattr(memory, scope).update(kept)
    return memory


def save_memory(state: RecordDict, content: RecordDict, cohort: Cohort, memory: Memory) -> None:
    """Write the node's memory; it replaces that of an earlier round or run."""
    for scope, mark in _marks(content, cohort).items():
        name, kept = f"{KEPT}-{scope}", getattr(memory, scope)
        if kept:
            arrays = {key: Array(value.detach().cpu().contiguous().numpy()) for key, value in kept.items()}
            state[name], state[f"{name}-mark"] = ArrayRecord(arrays), ConfigRecord(mark)
        else:
            state.pop(name, None)
            state.pop(f"{name}-mark", None)


def _marks(content: RecordDict, cohort: Cohort) -> dict[str, dict[str, Any]]:
    run = {"run": _take(_config(content), "run", str), "seed": int(cohort.seed)}
    return {"round": {"round": int(cohort.round), **run}, "run": run}


# --- versions ---------------------------------------------------------------------------------------------


def _versions() -> dict[str, Any]:
    return {"fedhv": __version__, "protocol": PROTOCOL}


def hello() -> RecordDict:
    """The server's first message to a node."""
    return RecordDict({CONFIG: ConfigRecord(_versions())})


@dataclass(frozen=True)
class Introduction:
    """A node's answer to the hello message: its partition, numbers of examples and labels, and its name."""

    partition: int
    holding: Holding
    name: str = ""


def introduction(who: Introduction, layout: Layout, tasks: list[str]) -> RecordDict:
    """The records of a node's answer to the hello message."""
    about: dict[str, Any] = {"partition": who.partition, "tasks": tasks, "parameters": layout.d}
    about["examples"] = who.holding.examples
    if layout.norm != "refuse":
        about["norm"] = layout.norm
    if who.name:
        about["name"] = who.name
    if who.holding.labels is not None:
        about["labels"] = list(who.holding.labels)
    return RecordDict({CONFIG: ConfigRecord(_versions() | about)})


def check_version(content: RecordDict, them: str) -> None:
    """Raise an error if the two sides have different versions."""
    config = _config(content)
    found = str(config.get("fedhv")), config.get("protocol")
    if found != (__version__, PROTOCOL):
        raise Malformed(
            f"versions differ: fedhv {__version__} (protocol {PROTOCOL}) here, "
            f"fedhv {found[0]} (protocol {found[1]!r}) on {them}; install the same version on both"
        )


def decode_introduction(content: RecordDict, layout: Layout, tasks: list[str]) -> Introduction:
    """A node's answer to the hello message, after checks of version, tasks and model."""
    check_version(content, "the node")
    config = _config(content)
    if config.get("tasks") != tasks:
        raise Malformed(f"tasks differ: {', '.join(tasks)} here, {config.get('tasks')!r} on the node")
    if config.get("parameters") != layout.d:
        raise Malformed(f"models differ: {layout.d} parameters here, {config.get('parameters')!r} on the node")
    if (norm := config.get("norm", "refuse")) != layout.norm:
        raise Malformed(f"policies for BatchNorm differ: norm = '{layout.norm}' here, {norm!r} on the node")
    examples = _take(config, "examples", int)
    if examples < 1:
        raise Malformed(f"`examples` of {examples}")
    partition, name = _take(config, "partition", int), printable(str(config.get("name", "")))[:LONGEST_NAME]
    labels: Any = config.get("labels")
    if labels is None:
        return Introduction(partition, Holding(examples), name)
    if not layout.partial:
        raise Malformed("labels are missing on the node; set `missing_labels` in the Server")
    whole = isinstance(labels, list) and all(isinstance(n, int) and not isinstance(n, bool) for n in labels)
    if not whole or len(labels) != len(tasks) or not all(0 <= n <= examples for n in labels) or not any(labels):
        raise Malformed(f"labels of {labels!r} for {len(tasks)} tasks and {examples} examples")
    return Introduction(partition, Holding(examples, tuple(labels)), name)


# --- sizes ------------------------------------------------------------------------------------------------


def serialised_bytes(message: Message) -> int:
    """The bytes of a message as Flower serialises it: arrays, records and metadata."""
    return sum(len(part.deflate()) for part in get_all_nested_objects(message).values())


# --- small pieces -----------------------------------------------------------------------------------------


def model_record(model: Tensor) -> ArrayRecord:
    """θ as the array record of Flower's loop."""
    return _arrays({"model": model})


def model_of(record: ArrayRecord, layout: Layout) -> Tensor:
    """θ from the array record of Flower's loop."""
    return _vector(RecordDict({ARRAYS: record}), "model", (layout.d,))


def _cohort(cohort: Cohort) -> dict[str, Any]:
    local = cohort.local
    return {
        "round": int(cohort.round),
        "seed": int(cohort.seed),
        **{f"local.{name}": list(v) if isinstance(v, tuple) else v for name, v in vars(local).items() if v is not None},
    }


def _arrays(tensors: dict[str, Tensor]) -> ArrayRecord:
    return ArrayRecord({name: Array(_float32(tensor)) for name, tensor in tensors.items()})


def _float32(tensor: Tensor) -> np.ndarray:
    array: np.ndarray = tensor.detach().cpu().contiguous().numpy()
    return array.astype(np.float32, copy=False)


def _vector(content: RecordDict, name: str, shape: tuple[int, ...]) -> Tensor:
    """A float32 array of a given shape; anything else is an error."""
    try:
        array: Array = content.array_records[ARRAYS][name]
    except KeyError:
        raise Malformed(f"no array '{name}'") from None
    if tuple(array.shape) != shape:
        raise Malformed(f"{name} of shape {tuple(array.shape)} instead of {shape}")
    if array.stype != SType.NUMPY:
        raise Malformed(f"{name} that cannot be read (it is of type '{array.stype}')")
    stream = io.BytesIO(array.data)
    try:
        if (version := np.lib.format.read_magic(stream)) != (1, 0):
            raise ValueError(f"a header of version {version}")
        found, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    except Exception as error:  # a header is parsed as Python code, which can raise almost any error
        raise Malformed(f"{name} that cannot be read ({error})") from None
    if found != shape or dtype not in (np.float32, np.float64):
        raise Malformed(f"{name} of shape {found} and type {dtype} instead of {shape} and float32")
    numbers = memoryview(array.data)[stream.tell() :]
    if len(numbers) != math.prod(shape) * dtype.itemsize:
        raise Malformed(f"{name} that cannot be read ({len(numbers)} bytes)")
    values = np.frombuffer(numbers, dtype).reshape(shape, order="F" if fortran else "C")
    # Flower's privacy modules may return double precision; a reply has the precision of the model.
    return torch.from_numpy(np.array(values, dtype=np.float32, order="C"))


def _numbers(values: Any, count: int, what: str) -> Tensor:
    if not isinstance(values, list) or len(values) != count or not all(isinstance(v, int | float) for v in values):
        found = len(values) if isinstance(values, list) else 1
        raise Malformed(f"{what} of {found} numbers instead of {count}")
    return torch.tensor([float(value) for value in values], dtype=torch.float32)


def _config(content: RecordDict) -> ConfigRecord:
    try:
        return content.config_records[CONFIG]
    except KeyError:
        raise Malformed("no configuration") from None


def _metrics(content: RecordDict) -> MetricRecord:
    try:
        return content.metric_records[METRICS]
    except KeyError:
        raise Malformed("no metrics") from None


def _take(config: ConfigRecord, name: str, kind: type) -> Any:
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float if kind is float else kind):
        raise Malformed(f"`{name}` of {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise Malformed(f"`{name}` of {value!r}")
    return value
