"""Tasks that no client of a cohort has: a rule uses their last reported losses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from fedhv.methods.base import Conversation, State
from fedhv.protocol.request import Replies

LAST = "last_report"
"""The key of the last F̂ in the state's memory."""


def remembered(conversation: Conversation, state: State) -> Conversation:
    """The same conversation, where every task has a reported loss.

    A task that no client of the cohort has keeps its last F̂ᵢ, and the history lists it in `absent`. Before its first
    report it has the mean of the other losses. If no labels are missing, nothing is stored.
    """
    replies, losses = None, None
    absent: list[int] = []
    while True:
        try:
            request = conversation.send(replies)
        except StopIteration as end:
            after: State = end.value
            if losses is None:
                return after
            memory = {**after.memory, LAST: losses.to(after.model.device)}
            return replace(after, memory=memory, record={**after.record, **({"absent": absent} if absent else {})})
        replies = yield request
        if getattr(replies, "reports", None) is not None and replies.layout.partial:
            losses, absent = _filled(replies.mean_report(), state.memory.get(LAST))
            replies = replace(replies, reports=losses[None], shares=None)


def absent_tasks(replies: Replies) -> dict[str, Any]:
    """For the record of a method without reports: the tasks that no client of the cohort has, if there are any."""
    gone = (~replies.present).nonzero().flatten().tolist()
    return {"absent": gone} if gone else {}


def _filled(losses: Tensor, last: Tensor | None) -> tuple[Tensor, list[int]]:
    """The losses with missing ones filled in, and the tasks of these."""
    gone = losses.isnan()
    if not bool(gone.any()):
        return losses, []
    known = losses[~gone].mean().expand(losses.shape) if last is None else last.to(losses)
    return losses.where(~gone, known), gone.nonzero().flatten().tolist()
