"""A grid in this process: every message is serialised as Flower does it, answered by a ClientApp, and sent back so."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, no_object_id_recompute
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

SUPERLINK = 1


class LocalGrid(Grid):
    """Nodes by their id, each with the partition that it holds. `trouble` may answer, or swallow, in a node's place."""

    def __init__(self, app: ClientApp, partitions: Mapping[int, int], **run_config: object) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = (
            1,
            SUPERLINK,
            1,
        )  # as a ServerApp's process has
        self.app = app
        self.nodes = {
            node: Context(0, node, {"partition-id": k}, RecordDict(), dict(run_config))
            for node, k in partitions.items()
        }
        self.trouble: Callable[[Message, int], Message | Exception | None] | None = None
        self.sent: list[Message] = []
        self.received: list[Message] = []
        self._replies: dict[str, Message] = {}

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        identifiers = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(uuid.uuid4())
            identifiers.append(message.metadata.message_id)
            self.sent.append(message)
            reply = self._answer(over_the_wire(message))
            if reply is not None:
                self._replies[message.metadata.message_id] = over_the_wire(reply)
        return identifiers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        there = [self._replies.pop(identifier) for identifier in list(message_ids) if identifier in self._replies]
        self.received += there
        return there

    def _answer(self, message: Message) -> Message | None:
        node = message.metadata.dst_node_id
        if node not in self.nodes:
            reply = Message(Error(ErrorCode.NODE_UNAVAILABLE, "Node is not available"), reply_to=message)
            reply.metadata.__dict__["_src_node_id"] = SUPERLINK  # as the infrastructure answers
            return reply
        try:
            if self.trouble is not None:
                found = self.trouble(message, self.nodes[node].node_config["partition-id"])
                if isinstance(found, Exception):
                    raise found
                if isinstance(found, Message):
                    return found
                if found is SWALLOWED:
                    return None
            return self.app(message, self.nodes[node])
        except Exception as error:
            why = f"{type(error)}:<'{error}'>"
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, why), reply_to=message)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(list(messages)))

    def set_run(self, run: object) -> None:
        raise NotImplementedError

    @property
    def run(self) -> object:
        raise NotImplementedError

    def create_message(self, *arguments: object, **named: object) -> Message:
        raise NotImplementedError


SWALLOWED: object = object()
"""What `trouble` returns for a message that is never answered."""


def over_the_wire(message: Message) -> Message:
    """The message as it comes out at the other end."""
    with no_object_id_recompute():  # as Flower pushes messages: otherwise every level hashes all levels below it again
        parts = {identifier: part.deflate() for identifier, part in get_all_nested_objects(message).items()}
        arrived = inflate_object_from_contents(message.object_id, parts)
    arrived.metadata.__dict__["_message_id"] = message.metadata.message_id
    return arrived
