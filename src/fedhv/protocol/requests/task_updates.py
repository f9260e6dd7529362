"""TaskUpdates: every task trained alone. Down θ; up one update for every task. FSMGDA's request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedhv.problem.parameters import Layout
from fedhv.protocol.fields import Shape, server_side, tensor
from fedhv.protocol.request import Replies, Reply, Request, Size
from fedhv.protocol.rows import rows
from fedhv.protocol.script import Descend, Member, Script


@dataclass(frozen=True)
class TaskUpdatesReply(Reply):
    """One update per task, m × d."""

    updates: Tensor = tensor("m", "d", label="update", bound="update")


@dataclass(frozen=True)
class TaskUpdateReplies(Replies):
    """The mean update of every task, m × d."""

    mean_updates: Tensor


@dataclass(frozen=True)
class TaskUpdates(Request):
    """For every task, K local steps on that task alone from the received model."""

    name: ClassVar[str] = "task_updates"
    reply: ClassVar[type[Reply]] = TaskUpdatesReply
    trains: ClassVar[bool] = True

    model: Tensor = tensor("d")
    each: bool = server_side(False)

    def answer(self, me: Member) -> Script:
        """One trajectory for every task."""
        updates = yield [Descend(self.model, w, part=i) for i, w in enumerate(torch.eye(me.layout.tasks))]
        return TaskUpdatesReply(rows(updates))

    def gradients(self, layout: Layout, steps: int) -> int:
        """K for every task."""
        return layout.tasks * steps

    def up(self, layout: Layout) -> Size:
        """Every task sends the shared parameters and its own head: its update is zero on the other heads."""
        common = layout.d_shared + layout.d_statistics
        return {"task updates": sum(common + layout.d_head(i) for i in range(layout.tasks))}

    def replies(self, answers: Replies) -> TaskUpdateReplies:
        """The mean updates."""
        return answers.named(TaskUpdateReplies, mean_updates=answers.means["updates"])

    def to_wire(self, reply: Any, layout: Layout) -> dict[str, Tensor]:
        """Without the entries that are zero."""
        return {"updates": pack_task_updates(reply.updates, layout)}

    def from_wire(self, found: Mapping[str, Tensor], layout: Layout) -> Reply:
        """The m × d updates."""
        return TaskUpdatesReply(unpack_task_updates(found["updates"], layout))

    def wire_shapes(self, layout: Layout) -> dict[str, Shape]:
        """One array."""
        return {"updates": (self.up(layout)["task updates"],)}


def pack_task_updates(updates: Tensor, layout: Layout) -> Tensor:
    """The shared parameters and the own head of every task's update; the other heads are zero."""
    return torch.cat([updates[i][_moved(layout, i)] for i in range(layout.tasks)])


def unpack_task_updates(packed: Tensor, layout: Layout) -> Tensor:
    """The m × d updates that `pack_task_updates` packed."""
    updates = packed.new_zeros(layout.tasks, layout.d)
    start = 0
    for i in range(layout.tasks):
        moved = _moved(layout, i)
        end = start + int(moved.sum())
        updates[i, moved] = packed[start:end]
        start = end
    return updates


def _moved(layout: Layout, task: int) -> Tensor:
    """Which entries of θ training one task alone can move."""
    return layout.mask([owner in (-1, task) for owner in layout.owners])
