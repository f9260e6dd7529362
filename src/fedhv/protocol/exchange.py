"""One exchange with a cohort: what is asked of whom, under which rules, and what the answers come to.

Answers are taken in the order of the cohort and summed in that order, so that the result is the same bit for bit
whoever computed them. At most one update is held beside the sum, unless a method asks for every reply.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedhv.problem.parameters import Layout
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.fields import TensorField, tensor_fields
from fedhv.protocol.intake import Intake
from fedhv.protocol.request import ClientReply, Refusal, Replies, Reply, Request
from fedhv.protocol.rows import rows
from fedhv.protocol.script import Member, Memory

Memories = defaultdict[int, Memory]
"""What every client of a run keeps, by client."""


def no_memories() -> Memories:
    """The beginning of a run: nobody keeps anything."""
    return defaultdict(Memory)


@dataclass(frozen=True)
class Call:
    """A request to a cohort.

    Attributes:
        request: What is asked.
        cohort: Who is asked.
        intake: What becomes of the answers on their way to the server.
        memories: What the clients of this run keep.
    """

    request: Request
    cohort: Cohort
    intake: Intake = field(default_factory=Intake)
    memories: Memories = field(default_factory=no_memories)

    def member(self, client: int, layout: Layout, examples: int) -> Member:
        """A client of the cohort, as the request's script sees it."""
        return Member(client, self.cohort, layout, examples, self.memories[client])

    def of(self, clients: Sequence[int]) -> Call:
        """The same request to some of the cohort."""
        return replace(self, cohort=replace(self.cohort, clients=clients))


class Collector:
    """Takes the answers of a cohort in, one by one or a stack at a time."""

    def __init__(self, call: Call, layout: Layout, examples: Callable[[int], int]) -> None:
        self._call, self._layout, self._examples = call, layout, examples
        self._fields = tensor_fields(call.request.reply)
        self._shapes = call.request.reply_shapes(layout)
        self._totals: dict[str, Tensor] = {}
        self._stacks: dict[str, list[Tensor]] = {name: [] for name, f in self._fields.items() if f.combine == "each"}
        self._each: list[ClientReply] = []
        self._taken: list[int] = []
        self.refused: list[Refusal] = []

    def take(self, client: int, reply: Reply) -> None:
        """One client's reply."""
        call = self._call
        reply, objection = call.intake.receive(call.request, call.cohort, self._layout, client, reply)
        if objection is not None:
            self.refused.append(Refusal(client, objection))
            return
        self._keep([client], [reply])

    def take_stack(self, clients: Sequence[int], replies: Sequence[Reply]) -> None:
        """The replies of several clients, which lie beside each other: one cheap test for all of them."""
        call, screening = self._call, self._call.intake.screening
        doubtful = {j for j, client in enumerate(clients) if call.intake.fault(call.cohort, client) is not None}
        if type(call.request).objection is not Request.objection:
            doubtful = set(range(len(clients)))
        else:  # one look at all tensors, which waits for a GPU once
            flags = torch.stack([screening.doubtful(f, stack) for f, stack in self._rows(replies)]).any(dim=0)
            doubtful |= set(torch.nonzero(flags).flatten().tolist())
        objections: dict[int, str] = {}
        arrived = list(replies)
        for j in sorted(doubtful):
            arrived[j], objection = call.intake.receive(call.request, call.cohort, self._layout, clients[j], replies[j])
            if objection is not None:
                objections[j] = objection
        self.refused += [Refusal(clients[j], objection) for j, objection in objections.items()]
        kept = [j for j in range(len(clients)) if j not in objections]
        self._keep([clients[j] for j in kept], [arrived[j] for j in kept])

    def _rows(self, replies: Sequence[Reply]) -> list[tuple[TensorField, Tensor]]:
        held = {name for name in self._fields if replies and getattr(replies[0], name) is not None}
        return [(self._fields[name], rows([getattr(reply, name) for reply in replies])) for name in held]

    def _keep(self, clients: Sequence[int], replies: Sequence[Reply]) -> None:
        if not clients:
            return
        self._taken += clients
        for name, about in self._fields.items():
            values = [value for reply in replies if (value := getattr(reply, name)) is not None]
            if about.combine == "each":
                self._stacks[name] += values
            elif values:
                self._total(name).add_(values[0] if len(values) == 1 else rows(values).sum(dim=0))
        if self._call.request.each:
            # An engine may use the memory of a reply again, as worker processes do.
            copies = (_copied(reply) for reply in replies)
            self._each += [ClientReply(k, self._examples(k), r) for k, r in zip(clients, copies, strict=True)]

    def _total(self, name: str) -> Tensor:
        if name not in self._totals:
            self._totals[name] = torch.zeros(self._shapes[name], device=self._call.request.device)
        return self._totals[name]

    def replies(self) -> Replies:
        """What the answers come to."""
        call = self._call
        cohort = replace(call.cohort, clients=self._taken) if self.refused else call.cohort
        taken = max(1, len(self._taken))
        means = {name: self._total(name).div_(taken) for name in self._fields if self._averaged(name)}
        stacks = {name: _together(self._fields[name], found) for name, found in self._stacks.items()}
        answers = Replies(
            cohort, self._layout, refused=tuple(self.refused), means=means, stacks=stacks, each=tuple(self._each)
        )
        return call.request.replies(answers)

    def _averaged(self, name: str) -> bool:
        return self._fields[name].combine == "mean" and self._call.request.asks_for(name)


def collect(call: Call, layout: Layout, answers: Iterable[Reply], examples: Callable[[int], int]) -> Replies:
    """The answers of a cohort, given in its order, put together."""
    collector = Collector(call, layout, examples)
    for client, answer in zip(call.cohort.clients, answers, strict=True):
        collector.take(client, answer)
    return collector.replies()


def _together(about: TensorField, found: Sequence[Tensor]) -> Tensor | None:
    """One row for each client; a few numbers go to the host, which waits for a GPU once."""
    if not found:
        return None
    return rows(found).cpu() if about.small else rows(found)


def _copied(reply: Reply) -> Reply:
    return replace(reply, **{n: v.clone() for n in tensor_fields(type(reply)) if (v := getattr(reply, n)) is not None})
