"""Shared memory between the parallel engine and its workers: the model going out, the answers coming back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedhv.problem.parameters import Layout
from fedhv.protocol.cohort import Cohort, ReportBudget
from fedhv.protocol.compression import Compressed, stack_shape
from fedhv.protocol.messages import (
    GramTerms,
    GramTermsReply,
    Reply,
    Request,
    TaskGradientReplies,
    TaskGradients,
    TaskGradientsReply,
    TaskUpdates,
    TaskUpdatesReply,
    Train,
    TrainReply,
)


@dataclass(frozen=True)
class Note:
    """A request without its tensors: all that has to be sent."""

    kind: type[Request]
    weighted: bool = False
    report: ReportBudget | None = None
    known: bool = False
    extra_upload: float = 1.0


class Board:
    """Tensors that both sides see. What is on the board is never sent; notes say what to make of it.

    `places` answers of size m × d can wait to be summed. Task gradients stay for the whole round, one for each
    client of the cohort: they are what clients keep between two exchanges.
    """

    def __init__(self, layout: Layout, places: int) -> None:
        self.layout = layout
        self.places = places
        self.model = _shared(layout.d)
        self.weights = _shared(layout.tasks)
        self.answers = _shared(places, layout.tasks, layout.d)
        self.kept = _shared(0, layout.tasks, layout.d)
        self.left, self.right, self.total_left, self.total_right = (_shared(0) for _ in range(4))

    # --- the engine's side ----------------------------------------------------------------------------------

    def make_room(self, request: Request, clients: int) -> bool:
        """Grow what the request needs; True if there is new memory, which only new workers see."""
        if not isinstance(request, TaskGradients):
            return False
        rows, columns, rank = stack_shape(self.layout.d_shared, self.layout.tasks, request.extra_upload)
        if len(self.kept) >= clients and self.total_left.shape == (rows, rank):
            return False
        self.kept = _shared(clients, self.layout.tasks, self.layout.d)
        self.left, self.right = _shared(clients, rows, rank), _shared(clients, rank, columns)
        self.total_left, self.total_right = _shared(rows, rank), _shared(rank, columns)
        return True

    def post(self, request: Request) -> Note:
        """Put the request's tensors on the board; returns the rest, to be sent with every client."""
        match request:
            case Train(model, weights, report, first):
                self.model.copy_(model)
                if weights is not None:
                    self.weights.copy_(weights)
                return Note(Train, weights is not None, report, first is not None)
            case TaskUpdates(model):
                self.model.copy_(model)
                return Note(TaskUpdates)
            case TaskGradients(model, extra_upload):
                self.model.copy_(model)
                return Note(TaskGradients, extra_upload=extra_upload)
            case GramTerms(total, _, extra_upload):
                self.total_left.copy_(total.left)
                self.total_right.copy_(total.right)
                return Note(GramTerms, extra_upload=extra_upload)

    def read(self, note: Note, position: int, answer: Any) -> Reply:
        """The answer of the client at a position of the cohort."""
        place = self.answers[position % self.places]
        if note.kind is Train:
            return TrainReply(place[0], None if answer is None else torch.tensor(answer))
        if note.kind is TaskUpdates:
            return TaskUpdatesReply(place)
        if note.kind is TaskGradients:
            mine = self._gradients(position)
            C = mine.compressed
            # The server's own copy of what travels; the board is written anew when the clients are asked again.
            return replace(mine, compressed=replace(C, left=C.left.clone(), right=C.right.clone()))
        return GramTermsReply(*(torch.tensor(matrix) for matrix in answer))

    # --- a worker's side ------------------------------------------------------------------------------------

    def request(self, note: Note, cohort: Cohort, seat: int) -> Request:
        """The request to a client, which `cohort` names alone; its task gradients, if it sent any, are at `seat`."""
        if note.kind is Train:
            weights = self.weights if note.weighted else None
            return Train(self.model, weights, note.report, self._own(cohort, seat) if note.known else None)
        if note.kind is TaskUpdates:
            return TaskUpdates(self.model)
        if note.kind is TaskGradients:
            return TaskGradients(self.model, note.extra_upload)
        shape = (self.layout.d_shared, self.layout.tasks)
        total = Compressed(self.total_left, self.total_right, shape)
        return GramTerms(total, self._own(cohort, seat), note.extra_upload)

    def write(self, reply: Reply, position: int) -> Any:
        """Put an answer's tensors on the board; returns the few numbers that are sent instead."""
        place = self.answers[position % self.places]
        match reply:
            case TrainReply(update, report):
                place[0].copy_(update)
                return None if report is None else report.tolist()
            case TaskUpdatesReply(updates):
                place.copy_(updates)
            case TaskGradientsReply(compressed, kept):
                self.kept[position].copy_(kept)
                self.left[position].copy_(compressed.left)
                self.right[position].copy_(compressed.right)
            case GramTermsReply(known, residual):
                return known.tolist(), residual.tolist()
        return None

    def _gradients(self, position: int) -> TaskGradientsReply:
        shape = (self.layout.d_shared, self.layout.tasks)
        return TaskGradientsReply(Compressed(self.left[position], self.right[position], shape), self.kept[position])

    def _own(self, cohort: Cohort, position: int) -> TaskGradientReplies:
        """What one client sent and kept in an earlier exchange."""
        return TaskGradientReplies(cohort, self.layout, (self._gradients(position),))


def _shared(*shape: int) -> Tensor:
    memory = torch.zeros(shape)
    memory.share_memory_()  # type: ignore[no-untyped-call]  # torch has no types here
    return memory
