"""Robust reports: the round receives one report, the mean, median or trimmed mean over clients."""

from __future__ import annotations

from dataclasses import replace

from fedhv.methods.base import Conversation, State
from fedhv.protocol.aggregation import Aggregate, aggregate_reports


def robust(conversation: Conversation, aggregate: Aggregate, trim: float) -> Conversation:
    """The same conversation, where `replies.mean_report()` is the robust aggregate of the clients' reports.

    The replies' `reports` then have one row, in double precision. With the mean, replies are unchanged.
    """
    if aggregate == "mean":
        return (yield from conversation)
    replies = None
    while True:
        try:
            request = conversation.send(replies)
        except StopIteration as end:
            after: State = end.value
            return after
        replies = yield request
        if getattr(replies, "reports", None) is not None:
            one = aggregate_reports(replies.reports.double(), aggregate, trim, replies.shares)
            replies = replace(replies, reports=one[None], shares=None)
