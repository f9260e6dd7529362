"""Tensors and plain values in Flower records; content that cannot be used raises `Malformed`."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.common.constant import SType
from torch import Tensor

from fedhv.problem.parameters import Layout
from fedhv.support.errors import printable

ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"
"""The names of the records of a message."""

LONGEST_ERROR = 400
"""The largest number of characters of an error text about a record."""


class Malformed(Exception):
    """A record with invalid content; the text describes the error.

    Parts of the text may come from another machine. Terminals and histories show it as one short printable line.
    """

    def __str__(self) -> str:
        """The text in one line."""
        return printable(super().__str__())[:LONGEST_ERROR]


def model_record(model: Tensor) -> ArrayRecord:
    """θ as the array record of Flower's loop."""
    return arrays_of({"model": model})


def model_of(record: ArrayRecord, layout: Layout) -> Tensor:
    """θ from the array record of Flower's loop."""
    return vector(RecordDict({ARRAYS: record}), "model", (layout.d,))


def arrays_of(tensors: dict[str, Tensor]) -> ArrayRecord:
    """Tensors as an array record, in float32."""
    return ArrayRecord({name: Array(_float32(tensor)) for name, tensor in tensors.items()})


def _float32(tensor: Tensor) -> np.ndarray:
    array: np.ndarray = tensor.detach().cpu().contiguous().numpy()
    return array.astype(np.float32, copy=False)


def vector(content: RecordDict, name: str, shape: tuple[int, ...]) -> Tensor:
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


def small_tensor(values: Any, count: int, what: str) -> Tensor:
    """A tensor that is sent as a list of numbers; anything but `count` numbers is an error."""
    if not isinstance(values, list) or len(values) != count or not all(isinstance(v, int | float) for v in values):
        found = len(values) if isinstance(values, list) else 1
        raise Malformed(f"{what} of {found} numbers instead of {count}")
    return torch.tensor([float(value) for value in values], dtype=torch.float32)


def config_of(content: RecordDict) -> ConfigRecord:
    """The configuration record of a message."""
    try:
        return content.config_records[CONFIG]
    except KeyError:
        raise Malformed("no configuration") from None


def metrics_of(content: RecordDict) -> MetricRecord:
    """The metric record of a reply."""
    try:
        return content.metric_records[METRICS]
    except KeyError:
        raise Malformed("no metrics") from None


def take(config: ConfigRecord, name: str, kind: type) -> Any:
    """A value of a configuration record with a type check."""
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float if kind is float else kind):
        raise Malformed(f"`{name}` of {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise Malformed(f"`{name}` of {value!r}")
    return value
