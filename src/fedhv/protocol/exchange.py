"""One exchange with a cohort: the request, the clients, the rules for replies, and the combined replies.

Replies are summed in an order that follows from the cohort (see `sums`), so the result is the same bit for bit on every
engine. At most one update is held in addition to a few sums, unless a method requests every reply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedhv.problem.labels import Holding
from fedhv.problem.parameters import Layout
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.comparing import outliers, robust_mean, update_norms
from fedhv.protocol.fields import TensorField, tensor_fields
from fedhv.protocol.intake import Intake
from fedhv.protocol.memories import Memories, no_memories
from fedhv.protocol.request import ClientReply, Refusal, Replies, Reply, Request, Unchecked
from fedhv.protocol.rows import rows
from fedhv.protocol.shares import Shares
from fedhv.protocol.sums import SIZES, Partial, Sums


@dataclass(frozen=True)
class Call:
    """A request to a cohort.

    Attributes:
        request: The request.
        cohort: The clients that receive it.
        intake: The rules for replies: faults, screening and averaging.
        memories: The memories of the clients of this run.
        trusting: Whether replies may be combined before they are screened. `Replies.unchecked` then has what the
            screening found; if it is doubtful, the round is computed again without trust.
    """

    request: Request
    cohort: Cohort
    intake: Intake = field(default_factory=Intake)
    memories: Memories = field(default_factory=no_memories)
    trusting: bool = False

    def of(self, clients: Sequence[int]) -> Call:
        """The same request to some of the cohort."""
        return replace(self, cohort=replace(self.cohort, clients=clients))


class Collector:
    """Combines the replies of a cohort, one by one or a stack at a time.

    Args:
        call: The request, the cohort and the rules for replies.
        layout: Of the model.
        holding: The numbers of examples and labels of a client.
        partial: The replies so far; those of some clients may be combined elsewhere and given here.
        to_host: Copies a small tensor to the host.
    """

    def __init__(
        self,
        call: Call,
        layout: Layout,
        holding: Callable[[int], Holding],
        partial: Partial | None = None,
        to_host: Callable[[Tensor], Tensor] = Tensor.cpu,
    ) -> None:
        self._call, self._layout, self._holding, self._to_host = call, layout, holding, to_host
        plain = type(call.request).objection is Request.objection and not call.intake.screening.compares
        self._trusting = call.trusting and plain and not call.intake.faults.any
        self._doubts: list[Tensor] = []
        self._shares = None if call.intake.average == "clients" and not layout.partial else Shares(call.intake.average)
        self._fields = tensor_fields(call.request.reply)
        self._shapes = call.request.reply_shapes(layout)
        self.partial = Partial() if partial is None else partial

    @property
    def refused(self) -> list[Refusal]:
        """The clients whose replies were refused."""
        return self.partial.refused

    def take(self, client: int, reply: Reply) -> None:
        """One client's reply."""
        call = self._call
        reply, objection = call.intake.receive(call.request, call.cohort, self._layout, client, reply)
        if objection is not None:
            self.partial.refused.append(Refusal(client, objection))
            return
        self._keep([client], [reply])

    def take_stack(self, clients: Sequence[int], replies: Sequence[Reply]) -> None:
        """The replies of several clients that are adjacent in memory: one cheap test for all of them."""
        call, screening = self._call, self._call.intake.screening
        doubtful = {j for j, client in enumerate(clients) if call.intake.fault(call.cohort, client) is not None}
        if type(call.request).objection is not Request.objection:
            doubtful = set(range(len(clients)))
        else:  # one test of all tensors, so that a GPU is synchronised once
            where = call.request.device  # clients that were computed alone have their losses on the CPU
            found = [screening.doubtful(f, stack).to(where) for f, stack in self._rows(replies)]
            flags = torch.stack(found).any(dim=0)
            if self._trusting:
                self._doubts.append(flags.any())
                self._keep(clients, replies)
                return
            doubtful |= set(torch.nonzero(flags).flatten().tolist())
        objections: dict[int, str] = {}
        arrived = list(replies)
        for j in sorted(doubtful):
            arrived[j], objection = call.intake.receive(call.request, call.cohort, self._layout, clients[j], replies[j])
            if objection is not None:
                objections[j] = objection
        self.partial.refused += [Refusal(clients[j], objection) for j, objection in objections.items()]
        kept = [j for j in range(len(clients)) if j not in objections]
        self._keep([clients[j] for j in kept], [arrived[j] for j in kept])

    def _rows(self, replies: Sequence[Reply]) -> list[tuple[TensorField, Tensor]]:
        held = {name for name in self._fields if replies and getattr(replies[0], name) is not None}
        return [(self._fields[name], rows([getattr(reply, name) for reply in replies])) for name in held]

    def _keep(self, clients: Sequence[int], replies: Sequence[Reply]) -> None:
        """Take replies that are good by themselves; those that are compared with others wait for these."""
        if not clients:
            return
        screening = self._call.intake.screening
        if self._call.intake.norms or screening.compares:
            found = update_norms(self._fields, replies)
            if found is not None:
                self.partial.norms.append((clients, found))
        if screening.compares and self._call.request.trains:
            # An engine may use the memory of a reply again, as worker processes do.
            self.partial.waiting.append((list(clients), [_copied(reply) for reply in replies]))
        else:
            self._sum(clients, replies)

    def _compare(self) -> None:
        """Leave out outliers, and sum the other replies in the cohort's order."""
        if not self.partial.waiting:
            return
        replies = {k: reply for some in self.partial.waiting for k, reply in zip(*some, strict=True)}
        self.partial.refused += outliers(self._call.intake.screening, self._fields, self.norms(), replies)
        out = {refusal.client for refusal in self.refused}
        for clients, answers in self.partial.waiting:
            kept = [j for j, k in enumerate(clients) if k not in out]
            self._sum([clients[j] for j in kept], [answers[j] for j in kept])
        self.partial.waiting.clear()

    def norms(self) -> dict[int, float]:
        """The norms of the updates so far, by client."""
        if not self.partial.norms:
            return {}
        clients = [k for some, _ in self.partial.norms for k in some]
        return dict(zip(clients, torch.cat([found for _, found in self.partial.norms]).tolist(), strict=True))

    def _sum(self, clients: Sequence[int], replies: Sequence[Reply]) -> None:
        if not clients:
            return
        self.partial.taken += clients
        robust = self._call.request.trains and self._call.intake.screening.aggregate != "mean"
        for name, about in self._fields.items():
            values = [value for reply in replies if (value := getattr(reply, name)) is not None]
            if about.combine == "each":
                self.partial.stacks.setdefault(name, []).extend([rows(values)] if values else [])
            elif robust:
                self.partial.robust.setdefault(name, []).extend(values)
            elif values and self._shares is None:
                self._total(name).add_(values[0] if len(values) == 1 else rows(values).sum(dim=0))
            elif values and self._shares is not None:
                stack = rows(values)
                share = self._shares.of(about, self._layout, [self._holding(k) for k in clients], stack)
                self._total(name).add_((share * stack).sum(dim=0))
                counts = self.partial.counts
                counts[name] = counts.get(name, 0) + share.sum(dim=0)
        if self._call.request.each:
            # An engine may reuse the memory of a reply, as worker processes do.
            copies = (_copied(reply) for reply in replies)
            self.partial.each += [
                ClientReply(k, self._holding(k).examples, r) for k, r in zip(clients, copies, strict=True)
            ]

    def _total(self, name: str) -> Tensor:
        totals = self.partial.totals
        if name not in totals:
            totals[name] = torch.zeros(self._shapes[name], device=self._call.request.device)
        return totals[name]

    def replies(self) -> Replies:
        """The combined replies."""
        self._compare()
        call = self._call
        cohort = replace(call.cohort, clients=self.partial.taken) if self.refused else call.cohort
        means = {name: self._mean(name) for name in self._fields if self._averaged(name)}
        shares = None
        if self._shares is not None:
            shares = self._shares.tasks(self._layout.tasks, [self._holding(k) for k in self.partial.taken])
        each = [(name, about) for name, about in self._fields.items() if about.combine == "each"]
        stacks = {name: self._together(about, self.partial.stacks.get(name, [])) for name, about in each}
        answers = Replies(
            cohort,
            self._layout,
            refused=tuple(self.refused),
            means=means,
            stacks=stacks,
            each=tuple(self.partial.each),
            shares=shares,
            statistics=self._statistics(means, shares),
            norms=self.norms() if call.intake.norms and not self._trusting else {},
            unchecked=self._unchecked() if self._trusting else None,
        )
        return call.request.replies(answers)

    def _unchecked(self) -> Unchecked:
        """The results of screening, on the device; they have not been copied to the host."""
        held = self.partial.norms if self._call.intake.norms else []
        norms = [found for _, found in held]
        return Unchecked(
            doubtful=torch.stack(self._doubts).any() if self._doubts else torch.zeros((), dtype=torch.bool),
            clients=tuple(k for some, _ in held for k in some),
            norms=torch.cat(norms) if norms else None,
        )

    def _together(self, about: TensorField, found: Sequence[Tensor]) -> Tensor | None:
        """One row for each client. Small tensors are moved to the host in one transfer."""
        if not found:
            return None
        whole = found[0] if len(found) == 1 else torch.cat(list(found))
        return self._to_host(whole) if about.small else whole

    def _statistics(self, means: Mapping[str, Tensor], shares: Tensor | None) -> Tensor | None:
        """The mean change of running statistics over clients, and over tasks that train alone and have labels."""
        for name, mean in means.items():
            about = self._fields[name]
            if any(self._layout.statistics) and about.bound == "update" and about.axes in (("d",), ("m", "d")):
                if about.axes == ("m", "d"):
                    mean = mean if shares is None else mean[(shares.sum(dim=0) > 0).to(mean.device)]
                    mean = mean.mean(dim=0)
                return mean * self._layout.statistic_entries.to(mean.device)
        return None

    def _mean(self, name: str) -> Tensor:
        """The mean over clients; parameters in which no client has a share do not move."""
        if values := self.partial.robust.get(name):
            return self._robust_mean(name, rows(values))
        total = self._total(name)
        if self._shares is None:
            return total.div_(max(1, len(self.partial.taken)))
        count = self.partial.counts.get(name, torch.zeros(()))
        return torch.where(count > 0, total / count, torch.zeros_like(total)) if self.partial.taken else total

    def _robust_mean(self, name: str, stack: Tensor) -> Tensor:
        screening, there = self._call.intake.screening, None
        assert screening.aggregate != "mean"
        if self._shares is not None:  # a head is combined over the clients that trained it, all alike
            holdings = [self._holding(k) for k in self.partial.taken]
            there = self._shares.of(self._fields[name], self._layout, holdings, stack) > 0
        return robust_mean(stack, screening.aggregate, screening.trim, there)

    def _averaged(self, name: str) -> bool:
        return self._fields[name].combine == "mean" and self._call.request.asks_for(name, self._layout)


def collect(call: Call, layout: Layout, answers: Iterable[Reply], holding: Callable[[int], Holding]) -> Replies:
    """The combined replies of a cohort; `answers` are in its order."""
    return Collector(call, layout, holding, summed(call, layout, answers, holding)).replies()


def summed(call: Call, layout: Layout, answers: Iterable[Reply], holding: Callable[[int], Holding]) -> Partial:
    """The sums over a cohort, or over a part of it that is one sum of the tree; `answers` are in its order."""
    sums, block, held = Sums(), Collector(call, layout, holding), 0
    for client, answer in zip(call.cohort.clients, answers, strict=True):
        block.take(client, answer)
        held += 1
        if held == SIZES[1]:
            sums.add(block.partial, level=1)
            block, held = Collector(call, layout, holding), 0
    if held:
        sums.add(block.partial, level=1)
    return sums.total()


def _copied(reply: Reply) -> Reply:
    return replace(reply, **{n: v.clone() for n in tensor_fields(type(reply)) if (v := getattr(reply, n)) is not None})
