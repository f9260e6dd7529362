"""Replies that come slowly."""

from __future__ import annotations

import threading
import time

from flwr.app import Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from waiting import HANG

from fedhv.flower import mailbox


class SlowGrid:
    """The first look for a reply takes until `release`, and finds none yet; the second finds it."""

    def __init__(self, message: Message) -> None:
        self.release, self.pulls, self._message = threading.Event(), 0, message

    def push_messages(self, messages):
        return [each.metadata.message_id for each in messages]

    def pull_messages(self, identifiers):
        self.pulls += 1
        if self.pulls == 1:
            assert self.release.wait(HANG)
            return []
        return [Message(RecordDict(), reply_to=self._message)]


def test_a_slow_look_that_finds_no_reply_is_repeated(monkeypatch):
    """On a busy machine every look may take longer than a reply that blocks should."""
    monkeypatch.setattr(mailbox, "STUCK", 0.0)
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    message = Message(RecordDict(), dst_node_id=1, message_type="train")
    message.metadata.__dict__["_message_id"] = "a"
    grid = SlowGrid(message)
    with mailbox.Mailbox(grid) as box:
        box.send([message])
        assert box.take(0.01) == []
        assert box.take(0.01) == []  # the look counts as stuck, and is not repeated while it goes on
        assert grid.pulls == 1
        grid.release.set()
        found, end = [], time.monotonic() + HANG
        while not found and time.monotonic() < end:
            found = box.take(0.05)
    assert [each.metadata.reply_to_message_id for each in found] == ["a"]
