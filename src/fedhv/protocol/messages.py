"""What a server asks and what clients answer. Every request knows how many scalars go down and come up.

| request       | down          | up                                | used by                  |
|---------------|---------------|-----------------------------------|--------------------------|
| Train         | θ, w          | Δθ_k, F̂_k                         | FedHV, Uniform, FedCMOO  |
| TaskUpdates   | θ             | one update for every task         | FSMGDA                   |
| TaskGradients | θ             | compressed task gradients         | FedCMOO, first exchange  |
| GramTerms     | their sum     | two m × m matrices                | FedCMOO, second exchange |

Clients answer in the order of the cohort; sums run in that order, so that the result is the same bit for bit
whoever computed it. Means are over clients, unweighted, as in the paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from fedhv.problem.parameters import Layout
from fedhv.protocol.aggregation import Aggregate, aggregate_reports
from fedhv.protocol.cohort import Cohort, ReportBudget
from fedhv.protocol.compression import Compressed
from fedhv.support.errors import InputError

Size = dict[str, int]
"""Scalars of a message by what they are."""


# --- requests ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Train:
    """K local steps on Σ wᵢℓᵢ, and before them, at the received model, a report of the m losses.

    Attributes:
        model: θᵗ.
        weights: wᵗ, held fixed for all K steps; None means 1/m each and sends nothing.
        report: The budget B_rep of the report; None asks for no report.
        first: Replies to an earlier `TaskGradients` of this round. The clients then have θᵗ already, and their
            first step applies the gradients they kept, Σ wᵢ∇ℓᵢ.
    """

    model: Tensor
    weights: Tensor | None = None
    report: ReportBudget | None = None
    first: TaskGradientReplies | None = None

    def down(self, layout: Layout) -> Size:
        """Scalars to each client."""
        model = {} if self.first else {"model": layout.d}
        return model | ({} if self.weights is None else {"weights": layout.tasks})

    def up(self, layout: Layout) -> Size:
        """Scalars from each client."""
        return {"update": layout.d} | ({} if self.report is None else {"report": layout.tasks})


@dataclass(frozen=True)
class TaskUpdates:
    """For every task, K local steps on that task alone from the received model."""

    model: Tensor

    def down(self, layout: Layout) -> Size:
        """Scalars to each client."""
        return {"model": layout.d}

    def up(self, layout: Layout) -> Size:
        """Every task sends the shared parameters and its own head."""
        return {"task updates": sum(layout.d_shared + layout.d_head(i) for i in range(layout.tasks))}


@dataclass(frozen=True)
class TaskGradients:
    """The m task gradients of one minibatch each, on the shared parameters, compressed.

    The compressed matrix counts as its budget of `extra_upload` times the shared parameters, as in the paper.
    """

    model: Tensor
    extra_upload: float = 1.0

    def down(self, layout: Layout) -> Size:
        """Scalars to each client."""
        return {"model": layout.d}

    def up(self, layout: Layout) -> Size:
        """Scalars from each client."""
        return {"compressed gradients": round(self.extra_upload * layout.d_shared)}


@dataclass(frozen=True)
class GramTerms:
    """What only a client can add to the Gram estimate, since it alone knows what its compression left out."""

    total: Compressed
    gradients: TaskGradientReplies
    extra_upload: float = 1.0

    def down(self, layout: Layout) -> Size:
        """Scalars to each client."""
        return {"compressed sum": round(self.extra_upload * layout.d_shared)}

    def up(self, layout: Layout) -> Size:
        """Scalars from each client."""
        return {"gram terms": 2 * layout.tasks**2}


Request = Train | TaskUpdates | TaskGradients | GramTerms


# --- what one client answers ------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainReply:
    """Δθ_k and F̂_k."""

    update: Tensor
    report: Tensor | None


@dataclass(frozen=True)
class TaskUpdatesReply:
    """One update per task, m × d."""

    updates: Tensor


@dataclass(frozen=True)
class TaskGradientsReply:
    """The compressed gradients C_k travel; the gradients themselves, m × d, stay with the client.

    A fault may change C_k on the way; `sent` is then what the client sent, which is what it goes on with.
    """

    compressed: Compressed
    kept: Tensor
    sent: Compressed | None = None


@dataclass(frozen=True)
class GramTermsReply:
    """AᵀA + Cᵀ(S−C) + 2Dᵀ(S−C) and DᵀD of one client, with D = A − C."""

    known: Tensor
    residual: Tensor


Reply = TrainReply | TaskUpdatesReply | TaskGradientsReply | GramTermsReply


# --- what the server gets from a cohort -------------------------------------------------------------------


@dataclass(frozen=True)
class Refusal:
    """A client that was left out of a round, and why: `asked` and `sent` say whether request and answer were sent."""

    client: int
    reason: str
    asked: bool = field(default=True, kw_only=True)
    sent: bool = field(default=True, kw_only=True)

    def as_dict(self) -> dict[str, int | str]:
        """As the history has it, in its list `refused`."""
        return {"client": self.client, "reason": self.reason}


@dataclass(frozen=True)
class Replies:
    """The answers of one cohort: of those that were taken; `refused` are the others that answered."""

    cohort: Cohort
    layout: Layout
    refused: tuple[Refusal, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class TrainReplies(Replies):
    """The mean update, and every client's report (M × m)."""

    mean_update: Tensor
    reports: Tensor | None

    def mean_report(self) -> Tensor:
        """F̂ᵗ, the mean of the clients' reports, in double precision."""
        return self.report("mean")

    def report(self, aggregate: Aggregate, trim: float = 0.0) -> Tensor:
        """F̂ᵗ as the mean, the median or the trimmed mean of the clients' reports, in double precision."""
        if self.reports is None:
            raise InputError('This request asked for no report. Ask for one: Train(…, report="all").')
        return aggregate_reports(self.reports.double(), aggregate, trim)


@dataclass(frozen=True)
class TaskUpdateReplies(Replies):
    """The mean update of every task, m × d."""

    mean_updates: Tensor


@dataclass(frozen=True)
class TaskGradientReplies(Replies):
    """What each client sent, and what it keeps for the rest of the round."""

    each: tuple[TaskGradientsReply, ...]

    def of(self, client: int) -> TaskGradientsReply:
        """What one client sent and kept."""
        return self.each[self._positions[client]]

    @cached_property
    def _positions(self) -> dict[int, int]:
        """Where each client stands in the cohort, so that M look-ups cost M."""
        return {client: position for position, client in enumerate(self.cohort.clients)}


@dataclass(frozen=True)
class GramTermReplies(Replies):
    """Sums over the cohort."""

    known: Tensor
    residual: Tensor


class _Sieve:
    """Lets those answers of a cohort through that are taken, in its order, and remembers whose they were."""

    def __init__(self, request: Request, cohort: Cohort, layout: Layout) -> None:
        self._request, self._cohort, self._layout = request, cohort, layout
        self._taken: list[int] = []
        self._refused: list[Refusal] = []

    def __call__(self, answers: Iterable[Reply]) -> Iterator[Reply]:
        intake = self._cohort.intake
        for client, answer in zip(self._cohort.clients, answers, strict=True):
            if intake is not None:
                answer, objection = intake.receive(self._request, self._cohort, self._layout, client, answer)
                if objection is not None:
                    self._refused.append(Refusal(client, objection))
                    continue
            self._taken.append(client)
            yield answer

    @property
    def cohort(self) -> Cohort:
        return replace(self._cohort, clients=self._taken) if self._refused else self._cohort

    @property
    def refused(self) -> tuple[Refusal, ...]:
        return tuple(self._refused)


def collect(request: Request, cohort: Cohort, layout: Layout, answers: Iterable[Reply]) -> Replies:
    """Put the answers of a cohort, given in its order, together; at most one update is held beside the sum."""
    taken = _Sieve(request, cohort, layout)
    match request:
        case Train():
            mean, reports = torch.zeros_like(request.model), []
            for answer in taken(answers):
                assert isinstance(answer, TrainReply)
                mean += answer.update
                if answer.report is not None:
                    reports.append(answer.report)
            mean.div_(max(1, len(taken.cohort)))
            return TrainReplies(
                taken.cohort, layout, mean, torch.stack(reports) if reports else None, refused=taken.refused
            )
        case TaskUpdates():
            total = request.model.new_zeros(layout.tasks, layout.d)
            for answer in taken(answers):
                assert isinstance(answer, TaskUpdatesReply)
                total += answer.updates
            total.div_(max(1, len(taken.cohort)))
            return TaskUpdateReplies(taken.cohort, layout, total, refused=taken.refused)
        case TaskGradients():
            each = tuple(answer for answer in taken(answers) if isinstance(answer, TaskGradientsReply))
            return TaskGradientReplies(taken.cohort, layout, each, refused=taken.refused)
        case GramTerms():
            terms = [answer for answer in taken(answers) if isinstance(answer, GramTermsReply)]
            known, residual = (
                torch.stack([getattr(term, name) for term in terms]).double().sum(dim=0)
                if terms
                else torch.zeros(layout.tasks, layout.tasks, dtype=torch.float64)
                for name in ("known", "residual")
            )
            return GramTermReplies(taken.cohort, layout, known, residual, refused=taken.refused)
