"""What of a message leaves a machine: entries of θ that stay with the clients are taken out, and put in again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from torch import Tensor

from fedhv.problem.parameters import Layout
from fedhv.protocol.fields import tensor_fields, tensors_of

Message = TypeVar("Message", bound=Any)
"""A request or a reply."""


def leaving(message: Message, layout: Layout) -> Message:
    """The message as it is sent; its layout is `layout.travelling`."""
    if not layout.resident:
        return message
    entries = ~layout.resident_entries
    sent = {name: value[..., entries.to(value.device)] for name, value in _vectors(message).items()}
    changed: Message = replace(message, **sent)
    return changed


def arriving(message: Message, layout: Layout, resident: Tensor | None = None) -> Message:
    """The message that was sent, whole again: the other entries are those of the vector `resident`, or zeros.

    Tensors that the client kept from an earlier message are whole already.
    """
    if not layout.resident:
        return message
    entries = ~layout.resident_entries

    def whole(value: Tensor) -> Tensor:
        made = value.new_zeros(*value.shape[:-1], layout.d)
        if resident is not None:
            made = made + resident.to(value)
        made[..., entries.to(value.device)] = value
        return made

    short = {name: value for name, value in _vectors(message).items() if value.shape[-1] != layout.d}
    changed: Message = replace(message, **{name: whole(value) for name, value in short.items()})
    return changed


def _vectors(message: Any) -> dict[str, Tensor]:
    """The tensors of a message whose last axis is that of θ."""
    about = tensor_fields(type(message))
    return {name: value for name, value in tensors_of(message).items() if (about[name].axes or ())[-1:] == ("d",)}
