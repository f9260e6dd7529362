"""A request from the server to a cohort, as one class with all its behaviour.

It defines the client's computation (`answer`), its size (`down`, `up`), the server's check (`objection`), the combined
replies (`replies`) and the wire form of a reply (`to_wire`, `from_wire`). Everything except `answer` follows from the
fields (see `fields`) unless a request overrides it. Engines and transports loop, stack, send and sum; they contain no
code for a particular request.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from fedhv.problem.parameters import Layout
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.fields import Shape, TensorField, tensor_fields, tensors_of
from fedhv.protocol.script import Member, Script
from fedhv.support.errors import InputError

Size = dict[str, int]
"""The scalars of a message by label."""

REQUESTS: dict[str, type[Request]] = {}
"""Every request class that is defined in this process, by its name on the wire."""


@dataclass(frozen=True)
class Reply:
    """The reply of one client: the tensors that are sent back."""


@dataclass(frozen=True)
class Refusal:
    """A client that was left out of a round, and why. `asked`: the request was sent. `sent`: the reply was sent."""

    client: int
    reason: str
    asked: bool = field(default=True, kw_only=True)
    sent: bool = field(default=True, kw_only=True)

    def as_dict(self) -> dict[str, int | str]:
        """The entry in the history's list `refused`."""
        return {"client": self.client, "reason": self.reason}


@dataclass(frozen=True)
class ClientReply:
    """One client's reply, for methods that request every reply; its tensors are attributes as well."""

    client: int
    examples: int
    reply: Reply

    def __getattr__(self, name: str) -> Any:
        if name == "reply":  # not set yet while a copy is made
            raise AttributeError(name)
        return getattr(self.reply, name)


@dataclass(frozen=True)
class Unchecked:
    """The results of screening of replies that were combined before these were read.

    Attributes:
        doubtful: Whether a reply has to be checked by itself, as a tensor on the device of the replies.
        clients: The clients of `norms`.
        norms: The norms of their updates, on the device.
    """

    doubtful: Tensor
    clients: tuple[int, ...] = ()
    norms: Tensor | None = None


@dataclass(frozen=True)
class Replies:
    """The combined replies of one cohort.

    Attributes:
        cohort: The clients whose answers were taken.
        layout: Of the model.
        refused: The others, with reasons.
        means: The mean over clients of every tensor that is averaged.
        stacks: Every other tensor of the replies, one row per client; None if no client sent it.
        each: The single replies, if the request has `each`; they take M times the memory of one reply.
        shares: The share of each client in the mean of each task, M × m; None if all shares are equal.
        statistics: The mean change of the model's running statistics, d numbers that are zero elsewhere; None if the
            model has none in θ or no client trained.
        norms: The norm of every update, by client, if it was requested or is needed.
        unchecked: The result of the screening, if the replies were combined before it was read.
    """

    cohort: Cohort
    layout: Layout
    refused: tuple[Refusal, ...] = field(default=(), kw_only=True)
    means: Mapping[str, Tensor] = field(default_factory=dict, kw_only=True)
    stacks: Mapping[str, Tensor | None] = field(default_factory=dict, kw_only=True)
    each: tuple[ClientReply, ...] = field(default=(), kw_only=True)
    shares: Tensor | None = field(default=None, kw_only=True)
    statistics: Tensor | None = field(default=None, kw_only=True)
    norms: Mapping[int, float] = field(default_factory=dict, kw_only=True)
    unchecked: Unchecked | None = field(default=None, kw_only=True)

    @property
    def present(self) -> Tensor:
        """The tasks that at least one client of the cohort has."""
        if self.shares is None:
            return torch.ones(self.layout.tasks, dtype=torch.bool)
        return self.shares.sum(dim=0) > 0

    def named(self, kind: type[NamedReplies], **values: Any) -> NamedReplies:
        """The same replies as a subclass with named attributes."""
        common = {each.name: getattr(self, each.name) for each in fields(Replies)}
        return kind(**common, **values)


NamedReplies = TypeVar("NamedReplies", bound=Replies)


class Request(ABC):
    """One kind of request. Subclasses are frozen dataclasses.

    Attributes:
        name: Its name on the wire: short for the package's own requests, otherwise module and class.
        reply: The class of a client's reply.
        trains: Whether clients train for it. Simulated crashes and delays happen in these exchanges.
        evaluates: Whether clients evaluate a model on what they hold out.
        keeps: Whether clients keep something in `memory.run` for later rounds.
        each: Whether the server keeps every reply in addition to the mean; a field if a method can choose it.
    """

    name: ClassVar[str] = ""
    reply: ClassVar[type[Reply]]
    trains: ClassVar[bool] = False
    evaluates: ClassVar[bool] = False
    keeps: ClassVar[bool] = False
    each: bool = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.name = vars(cls).get("name") or f"{cls.__module__}.{cls.__qualname__}"
        REQUESTS[cls.name] = cls

    @abstractmethod
    def answer(self, me: Member) -> Script:
        """The client's script: it yields computations, receives their results, and returns the reply."""

    # --- sizes --------------------------------------------------------------------------------------------------

    def down(self, layout: Layout) -> Size:
        """Scalars to each client."""
        shapes = self.shapes(layout, vars(self))
        held = tensors_of(self)
        return _counted({n: f for n, f in tensor_fields(type(self)).items() if n in held and not f.known}, shapes)

    def up(self, layout: Layout) -> Size:
        """Scalars from each client."""
        wanted = {name: about for name, about in tensor_fields(self.reply).items() if self.asks_for(name, layout)}
        return _counted(wanted, self.reply_shapes(layout))

    def gradients(self, layout: Layout, steps: int) -> int:
        """The number of minibatch gradients of a client that makes K local steps, as a measure of its work."""
        return steps if self.trains else 0

    def asks_for(self, name: str, layout: Layout) -> bool:
        """Whether the reply should contain this tensor; only optional tensors may be left out."""
        return True

    @classmethod
    def shapes(cls, layout: Layout, values: Mapping[str, Any]) -> dict[str, Shape]:
        """The shapes of its tensors; `values` are its plain fields."""
        return {name: about.shape(layout) for name, about in tensor_fields(cls).items()}

    def reply_shapes(self, layout: Layout) -> dict[str, Shape]:
        """The shapes of the reply's tensors."""
        return {name: about.shape(layout) for name, about in tensor_fields(self.reply).items()}

    @property
    def device(self) -> torch.device:
        """The device of its tensors."""
        return next((value.device for value in tensors_of(self).values()), torch.device("cpu"))

    # --- server side ------------------------------------------------------------------------------------------------

    def objection(self, reply: Any, layout: Layout) -> str | None:
        """Why a reply whose tensors are valid is refused, in a few words; None if it is accepted."""
        return None

    def replies(self, answers: Replies) -> Replies:
        """The combined replies, as the class of replies that belongs to this request; unchanged by default."""
        return answers

    # --- on the wire ------------------------------------------------------------------------------------------------

    def to_wire(self, reply: Any, layout: Layout) -> dict[str, Tensor]:
        """The tensors of a reply in wire form."""
        return tensors_of(reply)

    def from_wire(self, found: Mapping[str, Tensor], layout: Layout) -> Reply:
        """The reply from tensors in wire form."""
        return self.reply(**{name: found.get(name) for name in tensor_fields(self.reply)})

    def wire_shapes(self, layout: Layout) -> dict[str, Shape]:
        """The shapes of the tensors in wire form."""
        return {name: shape for name, shape in self.reply_shapes(layout).items() if self.asks_for(name, layout)}


def _counted(wanted: Mapping[str, TensorField], shapes: Mapping[str, Shape]) -> Size:
    size: Size = {}
    for name, about in wanted.items():
        size[about.label] = size.get(about.label, 0) + torch.Size(shapes[name]).numel()
    return size


def check_request(request: object, method: str) -> Request:
    """Reject an object that is not a request, and a subclass that changes nothing of its parent."""
    if not isinstance(request, Request):
        found = f"the class {request.__name__}" if isinstance(request, type) else f"a {type(request).__name__}"
        raise InputError(
            f"Method '{method}' should yield requests, such as fedhv.Train(…). Found {found}; "
            "a request of your own is an object of a class derived from fedhv.Request."
        )
    cls = type(request)
    parent = next(base for base in cls.__mro__[1:] if issubclass(base, Request))
    if parent is not Request and not _changes(cls):
        raise InputError(
            f"Method '{method}': the request '{cls.__name__}' changes nothing of '{parent.__name__}'. "
            f"Yield {parent.__name__} itself, or give {cls.__name__} an `answer` of its own."
        )
    return request


def _changes(cls: type) -> bool:
    """Whether a class defines behaviour; new fields alone have no effect."""
    own: Sequence[Any] = [value for name, value in vars(cls).items() if not name.startswith("__") and name != "name"]
    return any(callable(value) or isinstance(value, classmethod | property) for value in own)
