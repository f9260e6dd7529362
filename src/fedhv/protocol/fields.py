"""What a message's tensors are: their shape, what a server accepts of them, how the answers of a cohort are combined.

A message is a frozen dataclass. Its tensors are declared with `tensor(…)`; every other field is a plain value (a
number, a text, None) that travels beside them and costs nothing. Sizes, wire form, checks and sums follow from this.
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
        axes: Its shape in the symbols of the paper; None where the request computes it (`shapes`, `reply_shapes`).
        label: What sizes and objections call it; by default the field's name.
        small: A few numbers that travel as numbers, not as an array.
        known: Clients have it already: it is neither sent nor counted.
        combine: Of a reply: "mean" over clients, summed as answers arrive, or "each" client's beside the others.
        screened: Whether a server looks for shape and finite numbers by itself; else the request's `objection` does.
        bound: Which of the server's bounds holds for it: that of updates, of reported losses, of counts, or none.
        corruptible: Whether a fault that scales a reply scales it.
    """

    axes: tuple[Axis, ...] | None
    label: str
    small: bool = False
    known: bool = False
    combine: Literal["mean", "each"] = "mean"
    screened: bool = True
    bound: Literal["update", "report", "count"] | None = None
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
        label: What sizes and objections call it.
        default: None where it may be missing.
        computed: Whether the request computes its shape instead.
        about: The other attributes of `TensorField`.
    """
    made = (None if computed else axes, label, about)
    return field(default=default, metadata={_TENSOR: made})


def server_side(default: Any) -> Any:
    """Declare a plain value that stays with the server: it is not sent."""
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
    """The names of the plain values that travel with a message."""
    return tuple(each.name for each in fields(message) if _TENSOR not in each.metadata and _LOCAL not in each.metadata)


def tensors_of(message: Any) -> dict[str, Any]:
    """The tensors that a message holds, by name; those that are None are left out."""
    found = {name: getattr(message, name) for name in tensor_fields(type(message))}
    return {name: value for name, value in found.items() if value is not None}
