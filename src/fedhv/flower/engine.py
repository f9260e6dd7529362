"""The engine whose clients are Flower nodes: it sends the same requests through a grid."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from fedhv.flower.available import AvailableNodes
from fedhv.flower.exchange import SUPERLINKS, Quorum, exchange, reason
from fedhv.flower.patience import Patience
from fedhv.flower.records import Malformed
from fedhv.flower.status import check_stop
from fedhv.flower.wire import check_answer, decode_reply, encode_request, message_type, serialised_bytes
from fedhv.problem.problem import Problem
from fedhv.protocol.exchange import Call, collect
from fedhv.protocol.memories import Memories
from fedhv.protocol.report_privacy import ReportPrivacy
from fedhv.protocol.request import Refusal, Replies, Reply
from fedhv.protocol.requests.evaluate import EvaluateReplies
from fedhv.protocol.scales import loss_units
from fedhv.protocol.screening import Screening
from fedhv.protocol.traffic import Traffic
from fedhv.protocol.travelling import arriving, leaving
from fedhv.simulation.plan import Plan
from fedhv.simulation.record import bytes_sent
from fedhv.support import toml

OUTLIER = 10.0
"""An update whose norm exceeds this multiple of the cohort's median is refused; `server.outlier` changes it."""


class Nodes(Engine):
    """Sends requests to the nodes of the cohort's partitions. Missing and invalid replies are refused.

    It uses the problem's model, tasks, test examples and number of clients only.
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
        tell: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(problem, "cpu")
        self.patience, self.min_replies, self._owners = patience or Patience(), min_replies, owners
        self._stop, self._tell = stop, tell
        self.arrivals: dict[str, float] = {}
        """The seconds until each reply arrived, by the id of the answered message."""
        self._took_part: dict[int, dict[str, Any]] = {}
        self._nodes: AvailableNodes | None = None
        self._gathered = self._began = self._holds_out_none = False
        self._real = Traffic()
        # Nodes keep memory until the run ends. Another run with the same seed must not use it.
        self._run = uuid.uuid4().hex
        self._attempt, self._dropped = 0, list[int]()
        self._last: tuple[Memories | None, int] = (None, -1)
        if grid is not None:
            self.connect(grid)

    def connect(self, grid: Grid) -> None:
        """Use the nodes of this grid. Known nodes stay known."""
        if self._nodes is not None:
            self._nodes.grid = grid
            return
        names = [task.name for task in self.problem.tasks]
        self._nodes = AvailableNodes(
            grid,
            self.layout,
            names,
            len(self.problem.clients),
            self.patience,
            self._owners,
            self._tell,
            units=loss_units(self.problem),
        )

    @property
    def nodes(self) -> AvailableNodes:
        """The available nodes."""
        assert self._nodes is not None, "connect to a grid first"
        return self._nodes

    @property
    def population(self) -> Any:
        """A function that returns the available nodes, because they change between rounds."""
        return self.present

    def present(self) -> Sequence[int]:
        """The available partitions, in ascending order. The first call waits for all of them, up to the time limit."""
        check_stop(self._stop)
        first, self._gathered = not self._gathered, True
        self.nodes.need(self.min_replies, hoped=len(self.problem.clients) if first else 0)
        return self.nodes.available(self.min_replies)

    def sizes(self, clients: Sequence[int]) -> np.ndarray:
        """The number of examples of each of these partitions, as reported by its node."""
        return np.array([self.nodes.holdings[k].examples for k in clients])

    def labels(self) -> tuple[int, ...] | None:
        """The number of labels of every task, as reported by the nodes; None if all examples are labelled."""
        held = [] if self._nodes is None else list(self._nodes.holdings.values())
        if all(each.labels is None for each in held):
            return None
        return tuple(map(sum, zip(*(each.of(self.layout.tasks) for each in held), strict=True)))

    def client_labels(self) -> list[tuple[int, ...]]:
        """For every node its number of examples, then of labels for every task; empty where all are labelled."""
        if self._nodes is None or self.labels() is None:
            return []
        held = [self._nodes.holdings[k] for k in sorted(self._nodes.holdings)]
        return [(each.examples, *each.of(self.layout.tasks)) for each in held]

    def ask(self, call: Call) -> Replies:
        """The cohort's valid replies that arrive in time."""
        messages = self.messages(call)
        sent, quorum = list(messages.values()), quorum_of(call.intake.screening, len(messages))
        answers = exchange(self.nodes.grid, sent, self.patience.reply, quorum, self.arrivals)
        return self.replies(call, messages, answers.values())

    def messages(self, call: Call, extra: ConfigRecord | None = None) -> dict[int, Message]:
        """The messages with a request to the available clients of a cohort, by client."""
        request, cohort = call.request, call.cohort
        self._note_lost_memory(call)
        sent = leaving(request, self.layout)
        self._number_attempt(call)
        content = encode_request(
            sent,
            cohort,
            extra,
            self._run,
            partial=self.layout.partial,
            attempt=self._attempt,
            dropped=self._dropped,
        )
        made = {
            k: Message(
                content,
                self.nodes.members[k],
                message_type(request),
                ttl=self.patience.reply,  # later replies are not used
                group_id=str(cohort.round + 1),
            )
            for k in cohort.clients
            if k in self.nodes.members
        }
        self._real += Traffic(down=sum(serialised_bytes(message) for message in made.values()))
        return made

    def replies(self, call: Call, messages: dict[int, Message], answers: Iterable[Message]) -> Replies:
        """The combined replies, in the cohort's order. Missing and invalid replies are refused, with the reason."""
        arrived = {answer.metadata.reply_to_message_id: answer for answer in answers}
        closed = self._why_missing(call, messages, arrived)
        decoded: dict[int, Reply] = {}
        refused: list[Refusal] = []
        for k in call.cohort.clients:
            message = messages.get(k)
            if message is None:
                refused.append(Refusal(k, "its node is not available", asked=False, sent=False))
                continue
            answer = arrived.get(message.metadata.message_id)
            try:
                if answer is None:
                    self.nodes.missed(k)
                    raise Malformed(closed)
                if answer.has_error():
                    if answer.error.code in (*SUPERLINKS, ErrorCode.REPLY_MESSAGE_UNAVAILABLE):
                        self.nodes.missed(k)  # this reply is missing too
                    if answer.error.code not in SUPERLINKS:
                        self._note(k, message)
                    raise Malformed(reason(answer))
                self._note(k, message)
                self._real += Traffic(up=serialised_bytes(answer))
                self.nodes.answered(k)
                check_answer(answer.content, message.content)
                found = decode_reply(leaving(call.request, self.layout), answer.content, self.layout.travelling)
                decoded[k] = arriving(found, self.layout)
            except Malformed as error:
                refused.append(Refusal(k, str(error), sent=answer is not None and not answer.has_error()))
        answered = call.of([k for k in call.cohort.clients if k in decoded])
        there = [decoded[k] for k in answered.cohort.clients]
        taken = collect(answered, self.layout, there, self.nodes.holdings.__getitem__)
        self._note_nothing_held_out(taken)
        return replace(taken, refused=(*refused, *taken.refused))

    def _why_missing(self, call: Call, messages: Mapping[int, Message], arrived: Mapping[str, Message]) -> str:
        """The reason of a missing reply: the deadline, or the quorum."""
        quorum = quorum_of(call.intake.screening, len(messages))
        good = sum(not answer.has_error() for answer in arrived.values())
        if quorum is None or good < quorum.replies:
            return f"no reply within {self.patience.reply:g} s"
        return f"no reply within {quorum.grace:g} s after the quorum of {quorum.replies}"

    def _note(self, k: int, message: Message) -> None:
        """Record the node of a reply and the seconds that it took."""
        about = self._took_part.setdefault(k, {"client": k, "node": str(message.metadata.dst_node_id)})
        if name := self.nodes.names.get(k):
            about["name"] = name
        seconds = self.arrivals.pop(message.metadata.message_id, None)
        if seconds is not None:
            about["seconds"] = round(about.get("seconds", 0.0) + seconds, 3)

    def measured(self, number: int) -> dict[str, Any]:
        """The serialised bytes of all messages since the last call, and the nodes that answered."""
        real, self._real = self._real, Traffic()
        nodes, self._took_part = [self._took_part[k] for k in sorted(self._took_part)], {}
        self.arrivals.clear()
        return {"serialised": bytes_sent(real), "nodes": nodes}

    def _number_attempt(self, call: Call) -> None:
        """Number the attempts at rounds. One that is followed by another at the same round had too few replies."""
        memories, number = self._last
        if call.request.evaluates or call.memories is memories:
            return
        if call.cohort.round == number:
            self._dropped.append(self._attempt)
        self._attempt, self._last = self._attempt + 1, (call.memories, call.cohort.round)

    def _note_nothing_held_out(self, found: Replies) -> None:
        """Warn once if nodes evaluated a model and none of them holds out an example with a label."""
        if isinstance(found, EvaluateReplies) and len(found.cohort) and not bool(found.labels.any()):
            first, self._holds_out_none = not self._holds_out_none, True
            if first:
                self.notes.append(
                    f"None of the {len(found.cohort)} nodes that evaluated the model of round {found.cohort.round + 1} "
                    "holds out examples, so there are no scores of nodes. Give every Node `validation`, or give the "
                    "Server test examples and leave out its `validation`."
                )

    def _note_lost_memory(self, call: Call) -> None:
        """Warn once if this run continues another one whose nodes kept something between rounds: it is lost."""
        first, self._began = not self._began, True
        keeps = call.request.keeps or call.cohort.local.keep_state or bool(self.layout.resident)
        if first and keeps and call.cohort.round > 0:
            self.notes.append(
                "Flower's nodes keep what a client remembers between rounds (control variates, states of optimisers, "
                f"its own layers) until a run ends. From round {call.cohort.round + 1} on they begin without it, so "
                "the result differs from that of an uninterrupted run."
            )


def quorum_of(screening: Screening, asked: int) -> Quorum | None:
    """The quorum that closes an exchange with this number of nodes before its deadline."""
    enough = screening.enough(asked)
    return None if enough is None else Quorum(enough, screening.grace)


@dataclass(frozen=True)
class OverFlower(Choice):
    """The choice of engine for a run on the nodes of a grid."""

    grid: Grid | None = None
    patience: Patience = field(default_factory=Patience)
    min_replies: int = 1
    reports: ReportPrivacy | None = None
    owners: Mapping[int, int] | None = None
    stop: Path | None = None
    tell: Callable[[str], None] | None = None

    def make(self, problem: Problem) -> Nodes:
        """The engine."""
        return Nodes(problem, self.grid, self.patience, self.min_replies, self.owners, self.stop, self.tell)

    def adapted(self, plan: AnyPlan) -> AnyPlan:
        """Real nodes may be faulty or hostile: participants are recorded, and outliers among updates are refused."""
        assert isinstance(plan, Plan)
        screening = plan.screening
        if screening.outlier is None:
            screening = replace(screening, outlier=OUTLIER)
        return replace(plan, cohort=True, screening=screening)

    @property
    def fixes(self) -> dict[str, Any]:
        """The clipping and noise of reports. A change of them makes it another run."""
        return {} if self.reports is None else {"reports": toml.as_tables(self.reports)}


def over_flower(
    grid: Grid | None,
    patience: Patience | None = None,
    min_replies: int = 1,
    reports: ReportPrivacy | None = None,
    owners: Mapping[int, int] | None = None,
    stop: Path | None = None,
    tell: Callable[[str], None] | None = None,
) -> OverFlower:
    """The choice of a grid's nodes. `tell` receives messages about nodes; without it they are in Flower's log."""
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
        tell=tell,
    )
