"""The tensors of messages: their shapes, the server's checks, and how the replies of a cohort are combined.

A message is a frozen dataclass. Its tensors are declared with `tensor(…)`. Every other field is a plain value (a
number, a text, None) that is sent with them and not counted. Sizes, wire form, checks and sums follow from this.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # settings are read without PyTorch
    from fedhv.problem.parameters import Layout

Shape = tuple[int, ...]
Axis = Literal["d", "m"]
"""d, the parameters of the model; m, the tasks."""

_TENSOR = "tensor"
_LOCAL = "local"


@dataclass(frozen=True)
class TensorField:
    """One tensor of a message.

    Attributes:
        axes: Its shape in the symbols of the paper; None if the request computes it (`shapes`, `reply_shapes`).
        label: Its name in sizes and objections; by default the field's name.
        small: Whether it has a few numbers, which are sent as numbers and not as an array.
        known: Whether clients have it already; then it is neither sent nor counted.
        combine: For a reply: "mean" over clients, summed as replies arrive, or "each" for one row per client.
        screened: Whether the server checks shape and finiteness; otherwise the request's `objection` does.
        bound: The server's bound that applies to it: that of updates, of reported losses, of scores in [0, 1], of
            counts, of metrics (finite, otherwise free), or none.
        corruptible: Whether a fault that scales a reply scales this tensor.
    """

    axes: tuple[Axis, ...] | None
    label: str
    small: bool = False
    known: bool = False
    combine: Literal["mean", "each"] = "mean"
    screened: bool = True
    bound: Literal["update", "report", "score", "count", "metric"] | None = None
    corruptible: bool = True

    def shape(self, layout: Layout) -> Shape:
        """Its shape for a model."""
        assert self.axes is not None, f"the request should give the shape of '{self.label}'"
        sizes = {"d": layout.d, "m": layout.tasks}
        return tuple(sizes[axis] for axis in self.axes)


def tensor(*axes: Axis, label: str = "", default: Any = MISSING, computed: bool = False, **about: Any) -> Any:
    """Declare a tensor of a message, for instance `update: Tensor = tensor("d", bound="update")`.

    Args:
        axes: Its shape in symbols.
        label: Its name in sizes and objections.
        default: None if it may be missing.
        computed: Whether the request computes its shape instead.
        about: The other attributes of `TensorField`.
    """
    made = (None if computed else axes, label, about)
    return field(default=default, metadata={_TENSOR: made})


def server_side(default: Any) -> Any:
    """Declare a plain value that stays on the server and is not sent."""
    return field(default=default, metadata={_LOCAL: True})


def tensor_fields(message: type[Any]) -> dict[str, TensorField]:
    """The tensors of a message by name."""
    if message not in _KNOWN:
        declared = {f.name: f.metadata[_TENSOR] for f in fields(message) if _TENSOR in f.metadata}
        made = {name: TensorField(axes, label or name, **about) for name, (axes, label, about) in declared.items()}
        _KNOWN[message] = made
    return _KNOWN[message]


_KNOWN: dict[type[Any], dict[str, TensorField]] = {}


def plain_fields(message: type[Any]) -> tuple[str, ...]:
    """The names of the plain values that are sent with a message."""
    return tuple(each.name for each in fields(message) if _TENSOR not in each.metadata and _LOCAL not in each.metadata)


def tensors_of(message: Any) -> dict[str, Any]:
    """The tensors of a message by name; None is left out."""
    found = {name: getattr(message, name) for name in tensor_fields(type(message))}
    return {name: value for name, value in found.items() if value is not None}
