"""The available nodes and their partitions. Nodes come and go; every wait has a limit."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from logging import INFO

from flwr.app import Message
from flwr.common.logger import log
from flwr.serverapp import Grid

from fedhv.flower.exchange import reason
from fedhv.flower.mailbox import Mailbox
from fedhv.flower.wire import HELLO, Malformed, decode_introduction, hello
from fedhv.problem.labels import Holding
from fedhv.problem.parameters import Layout
from fedhv.protocol.screening import TooFewReplies
from fedhv.support.errors import InputError

SILENCE = 10.0
"""Seconds before the first message about waiting for nodes; later messages have four times the interval."""
LONGEST_REST = 15
"""Rounds that a node rests at most after it has missed deadlines in a row."""
PAUSE = 0.2
"""Seconds between two looks for nodes while waiting for them."""


@dataclass(frozen=True)
class Patience:
    """How long a server waits, in seconds.

    Attributes:
        reply: For the replies of one exchange; who has not answered by then is left out of the round.
        nodes: For nodes to be there: at the start for all of them, later for as many as a round needs. After a server
            has died, and unless its run is stopped, Flower takes a minute or more to free nodes that were receiving
            from it; a run that is to end as if nothing had happened waits for them.
        again: Between two attempts to be introduced to a node that has not answered properly.
    """

    reply: float = 600.0
    nodes: float = 180.0
    again: float = 30.0

    def __post_init__(self) -> None:
        for name, option in (("reply", "reply-seconds"), ("nodes", "node-seconds"), ("again", "again")):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise InputError(f"`{option}` should be a positive, finite number of seconds. Found {value}.")


class Roster:
    """The nodes that have introduced themselves, by the partition that they hold.

    Every node is greeted once; its answer says which partition it holds, and that it speaks the same language: version,
    protocol, tasks and model. A node that misses a deadline is greeted anew, and is back as soon as it answers: a
    dead one is not waited for again. One that misses deadlines in a row rests 1, 3, 7 and at most 15 rounds.

    Of several nodes that claim one partition the first takes part; the others are greeted anew once it is gone or
    misses a deadline, as the old process of a node does that was started again. Where `owners` says which node a
    partition belongs to, nobody else gets it.
    """

    def __init__(
        self,
        grid: Grid,
        layout: Layout,
        tasks: list[str],
        population: int,
        patience: Patience,
        owners: Mapping[int, int] | None = None,
    ) -> None:
        self.layout, self.tasks, self.population = layout, tasks, population
        self.patience, self._owners = patience, owners
        self.names: dict[int, str] = {}
        """What the nodes call themselves, by partition."""
        self._turn = 0
        self._misses: dict[int, int] = {}
        self._rests: dict[int, int] = {}
        self._mailbox = Mailbox(grid)
        self.members: dict[int, int] = {}
        self.holdings: dict[int, Holding] = {}
        """How many examples and labels each partition has, as its node said."""
        self.notes: list[str] = []
        """Messages for the user; the caller shows and removes them."""
        self._greeted: dict[int, float] = {}
        self._pending: dict[str, int] = {}
        self._objections: dict[int, str] = {}
        self._rivals: dict[int, int] = {}
        """Nodes that claim a partition which another node holds."""

    @property
    def grid(self) -> Grid:
        """Where the nodes are."""
        return self._mailbox.grid

    @grid.setter
    def grid(self, grid: Grid) -> None:
        self._mailbox.grid = grid

    def refresh(self, seconds: float = 0.02) -> None:
        """Take in who answered, forget who left, greet who is new. Hardly waits."""
        online = set(self.grid.get_node_ids())
        self.members = {k: node for k, node in self.members.items() if node in online}
        for reply in self._mailbox.take(seconds):
            node = self._pending.pop(reply.metadata.reply_to_message_id)
            if node in online and node not in self.members.values():
                self._take_in(node, reply)
        for node in [node for node, k in self._rivals.items() if k not in self.members]:
            del self._rivals[node]
            self._greeted.pop(node, None)
        known, now = set(self.members.values()), time.monotonic()
        due = [
            node
            for node in sorted(online - known)
            if now - self._greeted.get(node, -float("inf")) >= self.patience.again
        ]
        for node in due:
            greeting = Message(hello(), node, HELLO, ttl=self.patience.reply)
            for identifier in self._mailbox.send([greeting]):
                self._pending[identifier] = node
            self._greeted[node] = now

    def gather(self, wanted: int) -> None:
        """Wait until this number of partitions is available, or until the time limit."""
        end, said = time.monotonic() + self.patience.nodes, time.monotonic() + SILENCE
        self.refresh()
        while len(self.members) < wanted and time.monotonic() < end:
            self.refresh(PAUSE)
            if time.monotonic() > said:
                there = f"{len(self.members)} of {wanted} nodes are there"
                log(INFO, "%s; waiting for the others, at most %.0f s more", there, max(0, end - time.monotonic()))
                said += 4 * SILENCE

    def need(self, wanted: int) -> None:
        """Wait for this number of partitions; raise an error if they do not become available."""
        self.gather(wanted)
        if len(self.members) < wanted:
            why = "".join(f" Node {node}: {text}." for node, text in sorted(self._objections.items())[:5])
            raise TooFewReplies(
                f"A round needs {wanted} nodes. Found {len(self.members)} of {self.population} after "
                f'{self.patience.nodes:g} s.{why} Start SuperNodes with --node-config "partition-id=…".'
            )

    def available(self, wanted: int) -> list[int]:
        """The partitions that may be asked in the next round, in ascending order; called once for every cohort.

        Those that rest are left out, as long as there are enough others.
        """
        self._turn += 1
        rested = sorted(k for k in self.members if self._rests.get(k, 0) < self._turn)
        return rested if len(rested) >= wanted else sorted(self.members)

    def answered(self, partition: int) -> None:
        """A node's answer came in time."""
        self._misses.pop(partition, None)
        self._rests.pop(partition, None)

    def missed(self, partition: int) -> None:
        """A node's answer did not come in time, or not through: it takes no part until it answers a new greeting."""
        if partition in self.members:
            log(INFO, "%s, partition %s, has missed a deadline", self.called(partition), partition)
        misses = self._misses[partition] = self._misses.get(partition, 0) + 1
        self._rests[partition] = self._turn + min(2 ** (misses - 1) - 1, LONGEST_REST)
        node = self.members.pop(partition, None)
        if node is not None:
            self._greeted.pop(node, None)

    def _take_in(self, node: int, reply: Message) -> None:
        try:
            if reply.has_error():
                raise Malformed(reason(reply))
            who = decode_introduction(reply.content, self.layout, self.tasks)
            partition = who.partition
            if not 0 <= partition < self.population:
                raise Malformed(f"it holds partition {partition} of a federation of {self.population}")
            if self._owners is not None and self._owners.get(partition) != node:
                owner = self._owners.get(partition)
                whose = "no node" if owner is None else f"node {owner}"
                raise Malformed(f"it claims partition {partition}, which belongs to {whose} by the roster")
            if partition in self.members:
                self._rivals[node] = partition
                raise Malformed(f"node {self.members[partition]} has its partition, {partition}, already")
        except Malformed as objection:
            if self._objections.get(node) != str(objection):
                self.notes.append(f"Node {node} takes no part: {objection}.")
            self._objections[node] = str(objection)
            return
        self._objections.pop(node, None)
        self.members[partition], self.holdings[partition] = node, who.holding
        self.names[partition] = who.name
        log(INFO, "%s holds partition %s: %s examples", self.called(partition), partition, who.holding.examples)

    def called(self, partition: int) -> str:
        """What logs call the node of a partition."""
        node, name = self.members.get(partition), self.names.get(partition)
        return f"Node {node}{f' ({name})' if name else ''}"
