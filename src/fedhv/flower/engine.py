"""The engine whose clients are Flower nodes: the same questions, asked through a grid."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from flwr.app import ConfigRecord, Message
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from fedhv.engines import Choice
from fedhv.engines.base import Engine
from fedhv.engines.choosing import AnyPlan
from fedhv.engines.privacy import ReportPrivacy
from fedhv.flower.exchange import Quorum, exchange, reason
from fedhv.flower.roster import Patience, Roster
from fedhv.flower.status import check_stop
from fedhv.flower.wire import Malformed, decode_reply, encode_request, message_type, serialised_bytes
from fedhv.problem.problem import Problem
from fedhv.protocol.exchange import Call, collect
from fedhv.protocol.request import Refusal, Replies, Reply
from fedhv.protocol.screening import Screening
from fedhv.protocol.traffic import Traffic
from fedhv.protocol.travelling import arriving, leaving
from fedhv.simulation.record import bytes_sent
from fedhv.simulation.rounds import Plan
from fedhv.support import toml

OUTLIER = 10.0
"""An update whose norm exceeds this multiple of the cohort's median is refused; `server.outlier` changes it."""


class Nodes(Engine):
    """Asks the nodes that hold the cohort's partitions. What does not come back, or comes back wrong, is refused.

    Of the problem it uses the model, the tasks, the test examples and the number of clients.
    """

    saves_every_round: ClassVar[bool] = True

    def __init__(
        self,
        problem: Problem,
        grid: Grid | None,
        patience: Patience | None = None,
        min_replies: int = 1,
        owners: Mapping[int, int] | None = None,
        stop: Path | None = None,
    ) -> None:
        super().__init__(problem, "cpu")
        self.patience, self.min_replies, self._owners = patience or Patience(), min_replies, owners
        self._stop = stop
        self.arrivals: dict[str, float] = {}
        """After how many seconds each reply came, by the id of the message that it answers."""
        self._took_part: dict[int, dict[str, Any]] = {}
        self._roster: Roster | None = None
        self._gathered = False
        self._real = Traffic()
        # Nodes keep things until the run ends: another run with the same seed must not find them.
        self._run = uuid.uuid4().hex
        if grid is not None:
            self.connect(grid)

    def connect(self, grid: Grid) -> None:
        """The nodes of this grid are the ones; who is known stays known."""
        if self._roster is not None:
            self._roster.grid = grid
            return
        names = [task.name for task in self.problem.tasks]
        self._roster = Roster(grid, self.layout, names, len(self.problem.clients), self.patience, self._owners)

    @property
    def roster(self) -> Roster:
        """Who is there."""
        assert self._roster is not None, "connect to a grid first"
        return self._roster

    @property
    def population(self) -> Any:
        """A function that returns the available nodes, because nodes come and go."""
        return self.present

    def present(self) -> Sequence[int]:
        """The partitions that are there, in ascending order; the first time all are waited for, within bounds."""
        check_stop(self._stop)
        if not self._gathered:
            self.roster.gather(len(self.problem.clients))
            self._gathered = True
        self.roster.need(self.min_replies)
        self._pass_on_notes()
        return self.roster.available(self.min_replies)

    def sizes(self, clients: Sequence[int]) -> np.ndarray:
        """How many examples each of these partitions has, as its node said."""
        return np.array([self.roster.holdings[k].examples for k in clients])

    def labels(self) -> tuple[int, ...] | None:
        """How many labels the nodes have of every task, as they said; None where all examples are labelled."""
        held = [] if self._roster is None else list(self._roster.holdings.values())
        if all(each.labels is None for each in held):
            return None
        return tuple(map(sum, zip(*(each.of(self.layout.tasks) for each in held), strict=True)))

    def ask(self, call: Call) -> Replies:
        """The cohort's answers, as far as they come in time and hold what they should."""
        messages = self.messages(call)
        sent, quorum = list(messages.values()), quorum_of(call.intake.screening, len(messages))
        answers = exchange(self.roster.grid, sent, self.patience.reply, quorum, self.arrivals)
        return self.replies(call, messages, answers.values())

    def messages(self, call: Call, extra: ConfigRecord | None = None) -> dict[int, Message]:
        """The messages that put a request to those of a cohort that are there, by client."""
        request, cohort = call.request, call.cohort
        sent = leaving(request, self.layout)
        content = encode_request(sent, cohort, extra, self._run, partial=self.layout.partial)
        made = {
            k: Message(
                content,
                self.roster.members[k],
                message_type(request),
                ttl=self.patience.reply,  # what comes later is not wanted any more
                group_id=str(cohort.round + 1),
            )
            for k in cohort.clients
            if k in self.roster.members
        }
        self._real += Traffic(down=sum(serialised_bytes(message) for message in made.values()))
        return made

    def replies(self, call: Call, messages: dict[int, Message], answers: Iterable[Message]) -> Replies:
        """What the cohort's answers come to, taken in its order; who is missing or wrong is named with the reason."""
        arrived = {answer.metadata.reply_to_message_id: answer for answer in answers}
        closed = self._closed(call, messages, arrived)
        decoded: dict[int, Reply] = {}
        refused: list[Refusal] = []
        for k in call.cohort.clients:
            message = messages.get(k)
            if message is None:
                refused.append(Refusal(k, "its node is not there", asked=False, sent=False))
                continue
            answer = arrived.get(message.metadata.message_id)
            try:
                if answer is None:
                    self.roster.missed(k)
                    raise Malformed(closed)
                self._note(k, message)
                if answer.has_error():
                    if answer.error.code == ErrorCode.REPLY_MESSAGE_UNAVAILABLE:
                        self.roster.missed(k)  # nor did this one bring anything
                    raise Malformed(reason(answer))
                self._real += Traffic(up=serialised_bytes(answer))
                self.roster.answered(k)
                found = decode_reply(leaving(call.request, self.layout), answer.content, self.layout.travelling)
                decoded[k] = arriving(found, self.layout)
            except Malformed as objection:
                refused.append(Refusal(k, str(objection), sent=answer is not None and not answer.has_error()))
        answered = call.of([k for k in call.cohort.clients if k in decoded])
        there = [decoded[k] for k in answered.cohort.clients]
        taken = collect(answered, self.layout, there, self.roster.holdings.__getitem__)
        return replace(taken, refused=(*refused, *taken.refused))

    def _closed(self, call: Call, messages: Mapping[int, Message], arrived: Mapping[str, Message]) -> str:
        """Why a reply that is not there did not come in time."""
        quorum = quorum_of(call.intake.screening, len(messages))
        good = sum(not answer.has_error() for answer in arrived.values())
        if quorum is None or good < quorum.replies:
            return f"no reply within {self.patience.reply:g} s"
        return f"no reply within {quorum.grace:g} s after the quorum of {quorum.replies}"

    def _note(self, k: int, message: Message) -> None:
        """Who answered, and how long that took."""
        about = self._took_part.setdefault(k, {"client": k, "node": str(message.metadata.dst_node_id)})
        if name := self.roster.names.get(k):
            about["name"] = name
        seconds = self.arrivals.pop(message.metadata.message_id, None)
        if seconds is not None:
            about["seconds"] = round(about.get("seconds", 0.0) + seconds, 3)

    def measured(self) -> dict[str, Any]:
        """The real size of all that was sent since the last call, as Flower serialised it, and which nodes answered."""
        real, self._real = self._real, Traffic()
        nodes, self._took_part = [self._took_part[k] for k in sorted(self._took_part)], {}
        self.arrivals.clear()
        return {"serialised": bytes_sent(real), "nodes": nodes}

    def _pass_on_notes(self) -> None:
        self.notes += self.roster.notes
        self.roster.notes.clear()


def quorum_of(screening: Screening, asked: int) -> Quorum | None:
    """When an exchange with this number of nodes closes before its deadline."""
    enough = screening.enough(asked)
    return None if enough is None else Quorum(enough, screening.grace)


@dataclass(frozen=True)
class OverFlower(Choice):
    """Where and how a run is computed: on the nodes of a grid."""

    grid: Grid | None = None
    patience: Patience = field(default_factory=Patience)
    min_replies: int = 1
    reports: ReportPrivacy | None = None
    owners: Mapping[int, int] | None = None
    stop: Path | None = None

    def make(self, problem: Problem) -> Nodes:
        """The engine, ready to answer."""
        return Nodes(problem, self.grid, self.patience, self.min_replies, self.owners, self.stop)

    def adapted(self, plan: AnyPlan) -> AnyPlan:
        """Real nodes may be broken or hostile: who took part is recorded, and outliers among updates are refused."""
        assert isinstance(plan, Plan)
        screening = plan.screening
        if screening.outlier is None:
            screening = replace(screening, outlier=OUTLIER)
        return replace(plan, cohort=True, screening=screening)

    @property
    def fixes(self) -> dict[str, Any]:
        """What the nodes do to their reports: with another clip or noise it is another run."""
        return {} if self.reports is None else {"reports": toml.as_tables(self.reports)}


def over_flower(
    grid: Grid | None,
    patience: Patience | None = None,
    min_replies: int = 1,
    reports: ReportPrivacy | None = None,
    owners: Mapping[int, int] | None = None,
    stop: Path | None = None,
) -> OverFlower:
    """The choice of a grid's nodes."""
    return OverFlower(
        "flower",
        torch.device("cpu"),
        "float32",
        grid=grid,
        patience=patience or Patience(),
        min_replies=min_replies,
        reports=reports,
        owners=owners,
        stop=stop,
    )
