"""Messages between the processes of a Ray cluster: any Python object, with its tensors beside it.

Ray stores arrays without copying them and shares them between the processes of a machine. It does not know tensors, so
they are sent as arrays. Classes and functions that no module has, such as those of a notebook, are sent themselves.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

Message = tuple[bytes, list[np.ndarray]]
"""The object without its large arrays, and these."""

ALIGNED = 64
"""The alignment of torch's memory, in bytes."""


def pack(value: Any, shared: Iterable[Tensor] = ()) -> Message:
    """An object as a message. The `shared` tensors are not copied by `unpack`, and must not be changed there."""
    from ray import cloudpickle

    beside = {id(each) for each in shared}
    buffers: list[Any] = []

    class Pickler(cloudpickle.CloudPickler):
        """Sends tensors as arrays."""

        def reducer_override(self, obj: Any) -> Any:
            array = _array(obj) if type(obj) is Tensor else None
            if array is None:
                return super().reducer_override(obj)
            return _tensor, (array, obj.device.type, id(obj) in beside)

    file = io.BytesIO()
    Pickler(file, protocol=5, buffer_callback=buffers.append).dump(value)
    return file.getvalue(), [np.frombuffer(each.raw(), np.uint8) for each in buffers]


def unpack(message: Message) -> Any:
    """The object of a message."""
    from ray import cloudpickle

    header, arrays = message
    return cloudpickle.loads(header, buffers=arrays)


def _array(tensor: Tensor) -> np.ndarray | None:
    """A tensor's values as an array; None if NumPy does not have its type."""
    if tensor.requires_grad or tensor.layout != torch.strided:
        return None
    try:
        return np.ascontiguousarray(tensor.cpu().numpy()).reshape(tensor.shape)
    except TypeError:
        return None


def _tensor(array: np.ndarray, device: str, shared: bool) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that the array is read-only
        view = torch.from_numpy(array)
    # Matrix products have other last bits where memory is not aligned as torch aligns it; Ray aligns large arrays.
    return (view if shared and view.data_ptr() % ALIGNED == 0 else view.clone()).to(device)
