"""The available nodes and their partitions. Nodes can join and leave at any time; every wait has a limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from logging import INFO

from flwr.app import Message
from flwr.common.logger import log
from flwr.serverapp import Grid

from fedhv.flower.exchange import reason
from fedhv.flower.hello import HELLO, decode_hello_reply, hello
from fedhv.flower.mailbox import Mailbox
from fedhv.flower.patience import Patience
from fedhv.flower.records import Malformed
from fedhv.problem.labels import Holding
from fedhv.problem.parameters import Layout
from fedhv.protocol.screening import TooFewReplies

FIRST_NOTICE = 10.0
"""Seconds before the first message about waiting for nodes; later messages have four times the interval."""
LONGEST_PAUSE = 15
"""The largest number of rounds that a node pauses after consecutive missed deadlines."""
PAUSE = 0.2
"""Seconds between two checks for nodes while waiting for them."""


class AvailableNodes:
    """The available nodes, by partition.

    Every node receives a hello message once. Its answer has its partition, version, protocol, tasks and model. A node
    that misses a deadline receives a new hello message and is available again as soon as it answers, so rounds do not
    wait for a dead node. After consecutive missed deadlines a node pauses for 1, 3, 7 and at most 15 rounds.

    If several nodes claim one partition, the first one participates. The others receive a new hello message when it
    leaves or misses a deadline, for example because it is the old process of a restarted node. With `owners`, only
    the partition's owner can have it.
    """

    def __init__(
        self,
        grid: Grid,
        layout: Layout,
        tasks: list[str],
        population: int,
        patience: Patience,
        owners: Mapping[int, int] | None = None,
        tell: Callable[[str], None] | None = None,
        units: Sequence[float] = (),
    ) -> None:
        self.layout, self.tasks, self.population, self.units = layout, tasks, population, units
        self.patience, self._owners = patience, owners
        self._tell = tell or (lambda text: log(INFO, "%s", text))
        """Receives messages for the user at once: while the server waits for nodes, no round ends."""
        self.names: dict[int, str] = {}
        """The names of the nodes, by partition."""
        self._turn = 0
        self._misses: dict[int, int] = {}
        self._paused: dict[int, int] = {}
        self._mailbox = Mailbox(grid)
        self.members: dict[int, int] = {}
        self.holdings: dict[int, Holding] = {}
        """The numbers of examples and labels of each partition, as reported by its node."""
        self._sent_hello: dict[int, float] = {}
        """When each node was sent a hello message, by its id."""
        self._pending: dict[str, int] = {}
        self._refusals: dict[int, str] = {}
        self._claims: dict[int, int] = {}
        """Nodes that claim a partition of another node."""

    @property
    def grid(self) -> Grid:
        """Flower's connection to the nodes."""
        return self._mailbox.grid

    @grid.setter
    def grid(self, grid: Grid) -> None:
        self._mailbox.grid = grid

    def refresh(self, seconds: float = 0.02) -> None:
        """Register nodes that answered, remove nodes that left, send hello messages to new ones. Hardly waits."""
        online = set(self.grid.get_node_ids())
        self.members = {k: node for k, node in self.members.items() if node in online}
        for reply in self._mailbox.take(seconds):
            node = self._pending.pop(reply.metadata.reply_to_message_id)
            if node in online and node not in self.members.values():
                self._register(node, reply)
        for node in [node for node, k in self._claims.items() if k not in self.members]:
            del self._claims[node]
            self._sent_hello.pop(node, None)
        known, now = set(self.members.values()), time.monotonic()
        due = [
            node
            for node in sorted(online - known)
            if now - self._sent_hello.get(node, -float("inf")) >= self.patience.again
        ]
        for node in due:
            message = Message(hello(), node, HELLO, ttl=self.patience.reply)
            for identifier in self._mailbox.send([message]):
                self._pending[identifier] = node
            self._sent_hello[node] = now

    def gather(self, wanted: int) -> None:
        """Wait until this number of partitions is available, or until the time limit."""
        end, notice = time.monotonic() + self.patience.nodes, time.monotonic() + FIRST_NOTICE
        self.refresh()
        while len(self.members) < wanted and time.monotonic() < end:
            self.refresh(PAUSE)
            if time.monotonic() > notice:
                there = f"{len(self.members)} of {self.population} nodes are available"
                left = max(0.0, end - time.monotonic())
                self._tell(f"{there}; waiting for {wanted}, at most {left:.0f} s more.")
                notice += 4 * FIRST_NOTICE

    def need(self, wanted: int, hoped: int = 0) -> None:
        """Wait for `hoped` partitions, at least `wanted`; raise an error if fewer than `wanted` become available."""
        self.gather(max(wanted, hoped))
        if len(self.members) < wanted:
            why = " ".join(f"Node {node}: {text}." for node, text in sorted(self._refusals.items())[:5])
            raise TooFewReplies(
                f"A round needs {wanted} {'node' if wanted == 1 else 'nodes'}. Found {len(self.members)} of "
                f"{self.population} after {self.patience.nodes:g} s. "
                + (why or 'Start SuperNodes with --node-config "partition-id=…".')
            )

    def available(self, wanted: int) -> list[int]:
        """The partitions that can be in the next cohort, in ascending order; called once per cohort.

        Pausing nodes are left out, as long as there are enough others.
        """
        self._turn += 1
        ready = sorted(k for k in self.members if self._paused.get(k, 0) < self._turn)
        return ready if len(ready) >= wanted else sorted(self.members)

    def answered(self, partition: int) -> None:
        """Record that a node's answer arrived in time."""
        self._misses.pop(partition, None)
        self._paused.pop(partition, None)

    def missed(self, partition: int) -> None:
        """Record a missing or unreadable answer: the node does not participate until it answers a new hello message."""
        if partition in self.members:
            log(INFO, "%s, partition %s, has missed a deadline", self.label(partition), partition)
        misses = self._misses[partition] = self._misses.get(partition, 0) + 1
        self._paused[partition] = self._turn + min(2 ** (misses - 1) - 1, LONGEST_PAUSE)
        node = self.members.pop(partition, None)
        if node is not None:
            self._sent_hello.pop(node, None)

    def _register(self, node: int, reply: Message) -> None:
        try:
            if reply.has_error():
                raise Malformed(reason(reply))
            found = decode_hello_reply(reply.content, self.layout, self.tasks, self.units)
            partition = found.partition
            if not 0 <= partition < self.population:
                raise Malformed(f"it holds partition {partition} of a federation of {self.population}")
            if self._owners is not None and self._owners.get(partition) != node:
                owner = self._owners.get(partition)
                owned = "no node" if owner is None else f"node {owner}"
                raise Malformed(f"it claims partition {partition}, which belongs to {owned} by the roster")
            if partition in self.members:
                self._claims[node] = partition
                raise Malformed(f"node {self.members[partition]} has its partition, {partition}, already")
        except Malformed as refusal:
            if self._refusals.get(node) != str(refusal):
                self._tell(f"Node {node} does not participate: {refusal}.")
            self._refusals[node] = str(refusal)
            return
        self._refusals.pop(node, None)
        self.members[partition], self.holdings[partition] = node, found.holding
        self.names[partition] = found.name
        log(INFO, "%s holds partition %s: %s examples", self.label(partition), partition, found.holding.examples)

    def label(self, partition: int) -> str:
        """The node of a partition in logs."""
        node, name = self.members.get(partition), self.names.get(partition)
        return f"Node {node}{f' ({name})' if name else ''}"
