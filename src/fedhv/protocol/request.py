"""A request: what a server asks a cohort, as one class that owns all its behaviour.

It says what a client does (`answer`), how large it is (`down`, `up`), what a server accepts (`objection`), what the
cohort's answers come to (`replies`) and how a reply looks on the wire (`to_wire`, `from_wire`). Everything but `answer`
follows from the fields (see `fields`) unless a request says otherwise. Engines and transports know how to loop, stack,
send and sum; they know no request by name.
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
from fedhv.protocol.local import LocalTraining
from fedhv.protocol.script import Member, Script
from fedhv.support.errors import InputError

Size = dict[str, int]
"""Scalars of a message by what they are."""

REQUESTS: dict[str, type[Request]] = {}
"""Every request that is defined in this process, by its name on the wire."""


@dataclass(frozen=True)
class Reply:
    """What one client answers: the tensors that travel back."""


@dataclass(frozen=True)
class Refusal:
    """A client that was left out of a round, and why: `asked` and `sent` say whether request and answer were sent."""

    client: int
    reason: str
    asked: bool = field(default=True, kw_only=True)
    sent: bool = field(default=True, kw_only=True)

    def as_dict(self) -> dict[str, int | str]:
        """As the history has it, in its list `refused`."""
        return {"client": self.client, "reason": self.reason}


@dataclass(frozen=True)
class ClientReply:
    """One client's reply, where a method asked for every one of them; its tensors are attributes too."""

    client: int
    examples: int
    reply: Reply

    def __getattr__(self, name: str) -> Any:
        if name == "reply":  # asked for while a copy is being made
            raise AttributeError(name)
        return getattr(self.reply, name)


@dataclass(frozen=True)
class Replies:
    """The answers of one cohort.

    Attributes:
        cohort: The clients whose answers were taken.
        layout: Of the model.
        refused: The others, with reasons.
        means: The mean over clients of every tensor that is combined so.
        stacks: Every other tensor of the replies, one row for each client; None where no client sent it.
        each: The replies one by one, where the request asked for that; they take M times the memory of one.
        shares: How much each client's answer about each task counts, M × m; None where all count alike.
        statistics: The mean change of the model's running statistics, d numbers that are zero elsewhere; None where the
            model has none in θ or nobody trained.
    """

    cohort: Cohort
    layout: Layout
    refused: tuple[Refusal, ...] = field(default=(), kw_only=True)
    means: Mapping[str, Tensor] = field(default_factory=dict, kw_only=True)
    stacks: Mapping[str, Tensor | None] = field(default_factory=dict, kw_only=True)
    each: tuple[ClientReply, ...] = field(default=(), kw_only=True)
    shares: Tensor | None = field(default=None, kw_only=True)
    statistics: Tensor | None = field(default=None, kw_only=True)

    @property
    def present(self) -> Tensor:
        """Which tasks any client of the cohort has."""
        if self.shares is None:
            return torch.ones(self.layout.tasks, dtype=torch.bool)
        return self.shares.sum(dim=0) > 0

    def named(self, kind: type[NamedReplies], **values: Any) -> NamedReplies:
        """The same answers as a class that has names for some of them."""
        common = {each.name: getattr(self, each.name) for each in fields(Replies)}
        return kind(**common, **values)


NamedReplies = TypeVar("NamedReplies", bound=Replies)


class Request(ABC):
    """One kind of question. Subclasses are frozen dataclasses.

    Attributes:
        name: Its name on the wire: the package's own have short ones, others are named after module and class.
        reply: The class of a client's answer.
        trains: Whether clients train: the exchange that costs them time, in which they may crash or be late.
        each: Whether the server keeps every reply beside the mean; a field, where a method can ask for it.
    """

    name: ClassVar[str] = ""
    reply: ClassVar[type[Reply]]
    trains: ClassVar[bool] = False
    each: bool = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.name = vars(cls).get("name") or f"{cls.__module__}.{cls.__qualname__}"
        REQUESTS[cls.name] = cls

    @abstractmethod
    def answer(self, me: Member) -> Script:
        """What a client does, as a script: it yields computations, is sent their results, and returns its reply."""

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

    def gradients(self, layout: Layout, local: LocalTraining) -> int:
        """How many minibatch gradients a client computes: what a round's work is measured in."""
        return local.steps if self.trains else 0

    def asks_for(self, name: str, layout: Layout) -> bool:
        """Whether the reply should hold this tensor; those that it may lack are asked for or not."""
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
        """Where its tensors are."""
        return next((value.device for value in tensors_of(self).values()), torch.device("cpu"))

    # --- what a server accepts, and what it makes of the answers ---------------------------------------------------

    def objection(self, reply: Any, layout: Layout) -> str | None:
        """Why a reply is refused although each of its tensors looks right, in a few words; None where it is taken."""
        return None

    def replies(self, answers: Replies) -> Replies:
        """The answers of a cohort under the names that this request's users know; by default as they are."""
        return answers

    # --- on the wire ------------------------------------------------------------------------------------------------

    def to_wire(self, reply: Any, layout: Layout) -> dict[str, Tensor]:
        """The tensors of a reply as they travel."""
        return tensors_of(reply)

    def from_wire(self, found: Mapping[str, Tensor], layout: Layout) -> Reply:
        """The reply that these tensors stand for."""
        return self.reply(**{name: found.get(name) for name in tensor_fields(self.reply)})

    def wire_shapes(self, layout: Layout) -> dict[str, Shape]:
        """The shapes of what travels."""
        return {name: shape for name, shape in self.reply_shapes(layout).items() if self.asks_for(name, layout)}


def _counted(wanted: Mapping[str, TensorField], shapes: Mapping[str, Shape]) -> Size:
    size: Size = {}
    for name, about in wanted.items():
        size[about.label] = size.get(about.label, 0) + torch.Size(shapes[name]).numel()
    return size


def check_request(request: object, method: str) -> Request:
    """Refuse what is no request, and a subclass that changes nothing and would silently be its parent."""
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
    """Whether a class defines any behaviour of its own; new fields alone are read by nobody."""
    own: Sequence[Any] = [value for name, value in vars(cls).items() if not name.startswith("__") and name != "name"]
    return any(callable(value) or isinstance(value, classmethod | property) for value in own)
