"""Requests and replies as Flower records, and back. The only place that knows how they look on the wire.

| request       | message type         | down                        | up                                          |
|---------------|----------------------|-----------------------------|---------------------------------------------|
| Train         | train                | θ; w as m numbers           | θ_k after local training; F̂_k as m numbers  |
| TaskUpdates   | train.task_updates   | θ                           | for every task shared part and own head     |
| TaskGradients | train.task_gradients | θ                           | the two factors of the compressed gradients |
| GramTerms     | train.gram_terms     | the factors of their sum    | two m × m matrices                          |

The model is one flat array: Flower moves every array by itself, so an array for every layer would cost a network
exchange each. Clients return parameters, not differences, since that is what Flower's clipping and noise modules
expect; the server takes the difference. The small numbers, weights and reports, are m floats in a record of their own.
"""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.constant import SType
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from torch import Tensor

from fedhv._version import __version__
from fedhv.problem.parameters import Layout
from fedhv.protocol.cohort import Cohort, LocalTraining, ReportBudget
from fedhv.protocol.compression import Compressed, stack_shape
from fedhv.protocol.messages import (
    GramTerms,
    GramTermsReply,
    Reply,
    Request,
    TaskGradientReplies,
    TaskGradients,
    TaskGradientsReply,
    TaskUpdates,
    TaskUpdatesReply,
    Train,
    TrainReply,
)
from fedhv.support.errors import printable

PROTOCOL = 1
"""What requests and replies mean and what clients compute from them; it grows whenever any of that changes."""

HELLO = "query.hello"
"""The first message to every node: who are you, and do we speak the same language?"""

TYPES: dict[type[Request], str] = {
    Train: "train",
    TaskUpdates: "train.task_updates",
    TaskGradients: "train.task_gradients",
    GramTerms: "train.gram_terms",
}
"""The message type of every request."""

ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"

LONGEST_OBJECTION = 400
"""Characters of what is said about a record."""


class Malformed(Exception):
    """A record that does not hold what it should; the text says in a few words what is wrong.

    Some of these words may be a stranger's: they go to terminals and histories as one short line that can be read.
    """

    def __str__(self) -> str:
        """In one line."""
        return printable(super().__str__())[:LONGEST_OBJECTION]


# --- requests ---------------------------------------------------------------------------------------------


def encode_request(request: Request, cohort: Cohort, extra: ConfigRecord | None = None) -> RecordDict:
    """A request as records, the same for every client of the cohort.

    `extra` is what others want clients to know, such as the clipping norm of Flower's privacy modules.
    """
    config = ConfigRecord({**(extra or {}), **_language(), **_cohort(cohort)})
    arrays: dict[str, Tensor] = {}
    match request:
        case Train(model, weights, report, first):
            config["report"] = "none" if report is None else report
            config["first"] = first is not None  # the clients have θ and their gradients already
            if weights is not None:
                config["weights"] = [float(w) for w in weights]
            arrays = {} if first is not None else {"model": model}
        case TaskUpdates(model):
            arrays = {"model": model}
        case TaskGradients(model, extra_upload):
            config["extra-upload"] = float(extra_upload)
            arrays = {"model": model}
        case GramTerms(total, _, extra_upload):
            config["extra-upload"] = float(extra_upload)
            arrays = {"left": total.left, "right": total.right}
    return RecordDict({ARRAYS: _arrays(arrays), CONFIG: config})


def decode_cohort(content: RecordDict, client: int) -> Cohort:
    """All that fixes what a client does in this round; of the cohort it knows itself alone."""
    config = _config(content)
    local = LocalTraining(
        steps=_take(config, "steps", int),
        batch_size=_take(config, "batch-size", int),
        learning_rate=_take(config, "learning-rate", float),
        momentum=_take(config, "momentum", float),
        sampling=_take(config, "sampling", str),  # LocalTraining checks it
    )
    return Cohort([client], _take(config, "round", int), _take(config, "seed", int), local)


def decode_request(
    kind: str, content: RecordDict, layout: Layout, kept: Kept | None, device: torch.device | str = "cpu"
) -> Request:
    """The request of a message of type `kind`; `kept` is what the client remembers of this round."""
    config = _config(content)

    def model() -> Tensor:
        return _vector(content, "model", (layout.d,)).to(device)

    match kind:
        case "train":
            weights = config.get("weights")
            return Train(
                _kept(kept).model if config.get("first") else model(),
                None if weights is None else _numbers(weights, layout.tasks, "weights"),
                _budget(config.get("report")),
                _kept(kept).replies if config.get("first") else None,
            )
        case "train.task_updates":
            return TaskUpdates(model())
        case "train.task_gradients":
            return TaskGradients(model(), _take(config, "extra-upload", float))
        case "train.gram_terms":
            extra_upload = _take(config, "extra-upload", float)
            total = _compressed(content, layout, extra_upload)
            total = Compressed(total.left.to(device), total.right.to(device), total.shape)
            return GramTerms(total, _kept(kept).replies, extra_upload)
    raise Malformed(f"a message of the unknown type '{kind}'")


# --- replies ----------------------------------------------------------------------------------------------


def encode_reply(request: Request, reply: Reply, layout: Layout) -> RecordDict:
    """A client's answer as records."""
    metrics = MetricRecord()
    match reply:
        case TrainReply(update, report):
            assert isinstance(request, Train)
            arrays = {"model": request.model + update}
            if report is not None:
                metrics["report"] = [float(loss) for loss in report]
        case TaskUpdatesReply(updates):
            arrays = {"updates": pack_task_updates(updates, layout)}
        case TaskGradientsReply(compressed, _):
            arrays = {"left": compressed.left, "right": compressed.right}
        case GramTermsReply(known, residual):
            arrays = {"known": known, "residual": residual}
    return RecordDict({ARRAYS: _arrays(arrays), METRICS: metrics})


def decode_reply(request: Request, content: RecordDict, layout: Layout) -> Reply:
    """What a client answered to this request; raises `Malformed` where the records do not hold it."""
    m = layout.tasks
    match request:
        case Train(model):
            returned = _vector(content, "model", (layout.d,))
            report = _metrics(content).get("report")
            losses = None if report is None else _numbers(report, m, "report")
            return TrainReply(returned.to(model) - model, losses)
        case TaskUpdates():
            length = request.up(layout)["task updates"]
            return TaskUpdatesReply(unpack_task_updates(_vector(content, "updates", (length,)), layout))
        case TaskGradients(_, extra_upload):
            # The gradients themselves stay with the client.
            return TaskGradientsReply(_compressed(content, layout, extra_upload), torch.empty(0))
        case GramTerms():
            return GramTermsReply(_vector(content, "known", (m, m)), _vector(content, "residual", (m, m)))


def pack_task_updates(updates: Tensor, layout: Layout) -> Tensor:
    """Of every task's update the shared parameters and its own head; it is zero on the other heads."""
    return torch.cat([updates[i][_moved(layout, i)] for i in range(layout.tasks)])


def unpack_task_updates(packed: Tensor, layout: Layout) -> Tensor:
    """The m × d updates that `pack_task_updates` packed."""
    updates = packed.new_zeros(layout.tasks, layout.d)
    start = 0
    for i in range(layout.tasks):
        moved = _moved(layout, i)
        end = start + int(moved.sum())
        updates[i, moved] = packed[start:end]
        start = end
    return updates


def _moved(layout: Layout, task: int) -> Tensor:
    """Which entries of θ training one task alone can move."""
    owned = [owner in (-1, task) for owner in layout.owners]
    return torch.repeat_interleave(torch.tensor(owned), torch.tensor(layout.sizes))


# --- what a client remembers between the exchanges of one round -------------------------------------------


class Kept:
    """FedCMOO's first exchange leaves θ and the task gradients with the client; the next two build on them.

    They are kept in the node's own state (Flower hands it from message to message) rather than computed again from
    the seed: that would cost the gradients twice, and agree only where kernels are deterministic.
    """

    NAME = "fedhv-kept"

    def __init__(self, model: Tensor, reply: TaskGradientsReply, cohort: Cohort, layout: Layout) -> None:
        self.model, self.reply, self.cohort, self.layout = model, reply, cohort, layout

    @property
    def replies(self) -> TaskGradientReplies:
        """As the requests that build on the gradients want them: the replies of a cohort of one."""
        return TaskGradientReplies(self.cohort, self.layout, (self.reply,))

    def save(self, state: RecordDict) -> None:
        """Into the node's state, in place of what an earlier round left there."""
        arrays = {
            "model": self.model,
            "gradients": self.reply.kept,
            "left": self.reply.compressed.left,
            "right": self.reply.compressed.right,
        }
        state[self.NAME] = _arrays(arrays)
        state[f"{self.NAME}-round"] = ConfigRecord({"round": self.cohort.round, "seed": self.cohort.seed})

    @classmethod
    def load(cls, state: RecordDict, cohort: Cohort, layout: Layout, device: torch.device | str = "cpu") -> Kept | None:
        """What is kept of this very round; None if there is nothing."""
        if cls.NAME not in state:
            return None
        mark = state.config_records[f"{cls.NAME}-round"]
        if (mark["round"], mark["seed"]) != (cohort.round, cohort.seed):
            return None
        found = state.array_records[cls.NAME]
        names = ("model", "gradients", "left", "right")
        model, gradients, left, right = (torch.from_numpy(found[name].numpy()).to(device) for name in names)
        compressed = Compressed(left, right, (layout.d_shared, layout.tasks))
        return cls(model, TaskGradientsReply(compressed, gradients), cohort, layout)

    @classmethod
    def clear(cls, state: RecordDict) -> None:
        """Forget it."""
        for name in (cls.NAME, f"{cls.NAME}-round"):
            state.pop(name, None)


def _kept(kept: Kept | None) -> Kept:
    if kept is None:
        raise Malformed("this node no longer has the task gradients of this round")
    return kept


# --- versions ---------------------------------------------------------------------------------------------


def _language() -> dict[str, Any]:
    return {"fedhv": __version__, "protocol": PROTOCOL}


def hello() -> RecordDict:
    """The server's first message to a node."""
    return RecordDict({CONFIG: ConfigRecord(_language())})


def introduction(partition: int, layout: Layout, tasks: list[str]) -> RecordDict:
    """What a node answers to it."""
    about = {"partition": partition, "tasks": tasks, "parameters": layout.d}
    return RecordDict({CONFIG: ConfigRecord(_language() | about)})


def check_language(content: RecordDict, them: str) -> None:
    """Refuse to go on where the two sides are of different versions; names both."""
    config = _config(content)
    found = str(config.get("fedhv")), config.get("protocol")
    if found != (__version__, PROTOCOL):
        raise Malformed(
            f"versions differ: fedhv {__version__} (protocol {PROTOCOL}) here, "
            f"fedhv {found[0]} (protocol {found[1]!r}) on {them}; install the same on both"
        )


def decode_introduction(content: RecordDict, layout: Layout, tasks: list[str]) -> int:
    """The partition that a node holds, once versions, tasks and model agree."""
    check_language(content, "the node")
    config = _config(content)
    if config.get("tasks") != tasks:
        raise Malformed(f"tasks differ: {', '.join(tasks)} here, {config.get('tasks')!r} on the node")
    if config.get("parameters") != layout.d:
        raise Malformed(f"models differ: {layout.d} parameters here, {config.get('parameters')!r} on the node")
    partition: int = _take(config, "partition", int)
    return partition


# --- sizes ------------------------------------------------------------------------------------------------


def serialised_bytes(message: Message) -> int:
    """What a message really takes, as Flower serialises it: arrays, records and metadata."""
    return sum(len(part.deflate()) for part in get_all_nested_objects(message).values())


# --- small pieces -----------------------------------------------------------------------------------------


def model_record(model: Tensor) -> ArrayRecord:
    """θ as Flower's loop hands it around."""
    return _arrays({"model": model})


def model_of(record: ArrayRecord, layout: Layout) -> Tensor:
    """θ from what Flower's loop hands around."""
    return _vector(RecordDict({ARRAYS: record}), "model", (layout.d,))


def _cohort(cohort: Cohort) -> dict[str, Any]:
    local = cohort.local
    return {
        "round": int(cohort.round),
        "seed": int(cohort.seed),
        "steps": local.steps,
        "batch-size": local.batch_size,
        "learning-rate": float(local.learning_rate),
        "momentum": float(local.momentum),
        "sampling": local.sampling,
    }


def _arrays(tensors: dict[str, Tensor]) -> ArrayRecord:
    return ArrayRecord({name: Array(_float32(tensor)) for name, tensor in tensors.items()})


def _float32(tensor: Tensor) -> np.ndarray:
    array: np.ndarray = tensor.detach().cpu().contiguous().numpy()
    return array.astype(np.float32, copy=False)


def _vector(content: RecordDict, name: str, shape: tuple[int, ...]) -> Tensor:
    """A float32 array of a given shape, whatever a stranger put in its place."""
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
    except Exception as error:  # a header is parsed as Python, and bad Python raises nearly anything
        raise Malformed(f"{name} that cannot be read ({error})") from None
    if found != shape or dtype not in (np.float32, np.float64):
        raise Malformed(f"{name} of shape {found} and type {dtype} instead of {shape} and float32")
    numbers = memoryview(array.data)[stream.tell() :]
    if len(numbers) != math.prod(shape) * dtype.itemsize:
        raise Malformed(f"{name} that cannot be read ({len(numbers)} bytes)")
    values = np.frombuffer(numbers, dtype).reshape(shape, order="F" if fortran else "C")
    # What Flower's privacy modules return may be double; a reply has the precision of the model.
    return torch.from_numpy(np.array(values, dtype=np.float32, order="C"))


def _compressed(content: RecordDict, layout: Layout, extra_upload: float) -> Compressed:
    d, m = layout.d_shared, layout.tasks
    rows, columns, rank = stack_shape(d, m, extra_upload)
    return Compressed(_vector(content, "left", (rows, rank)), _vector(content, "right", (rank, columns)), (d, m))


def _numbers(values: Any, count: int, what: str) -> Tensor:
    if not isinstance(values, list) or len(values) != count or not all(isinstance(v, int | float) for v in values):
        found = len(values) if isinstance(values, list) else 1
        raise Malformed(f"{what} of {found} numbers instead of {count}")
    return torch.tensor([float(value) for value in values], dtype=torch.float32)


def _budget(value: Any) -> ReportBudget | None:
    if value == "none":
        return None
    if value == "all":
        return "all"
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise Malformed(f"a report budget of {value!r}")


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
