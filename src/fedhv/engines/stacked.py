"""The whole cohort as one batched computation: `vmap(grad)` of the one client definition.

Every request comes down to trajectories: a client's K steps from θ under some weights. All trajectories of all runs
that wait at the same time are stacked and stepped together; on a GPU a round is compiled once and then replayed as
a CUDA graph. Reports need no stack: all clients of a run report at the same θ, so theirs is one plain batch.

Dropout draws inside the stack come from the round's stream, not each client's own: the one thing in which this
engine differs from the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedhv.client import GRADIENT_PART, descend, draw_minibatches
from fedhv.cohort import Cohort, report_positions
from fedhv.compression import compress_all
from fedhv.engines.base import Engine
from fedhv.engines.graphs import Recorder
from fedhv.errors import FedHVError
from fedhv.messages import (
    GramTerms,
    Replies,
    Request,
    TaskGradientReplies,
    TaskGradients,
    TaskGradientsReply,
    TaskUpdateReplies,
    TaskUpdates,
    Train,
    TrainReplies,
    collect,
)
from fedhv.problem import Examples, Problem
from fedhv.random import Purpose


@dataclass(frozen=True)
class Trajectory:
    """What one client is to compute: K steps from a model under some weights, or a single gradient there.

    Attributes:
        cohort: Whose member the client is; fixes the round, the seed and the hyper-parameters.
        client: k.
        model: θ.
        weights: w.
        part: Which part of the client's random stream; from `GRADIENT_PART` on it is a single gradient.
        first: The gradient of the first step, where it is known already.
    """

    cohort: Cohort
    client: int
    model: Tensor
    weights: Tensor
    part: int = 0
    first: Tensor | None = None

    @property
    def shape(self) -> Shape:
        """Trajectories of one shape can be stacked."""
        local = self.cohort.local
        single, known = self.part >= GRADIENT_PART, self.first is not None
        return Shape(1 if single else local.steps - known, local.batch_size, local.momentum, single, known)


@dataclass(frozen=True)
class Shape:
    """All that trajectories in one stack must have in common; learning rates may differ."""

    minibatches: int
    batch_size: int
    momentum: float
    single: bool
    known: bool


class Stacked(Engine):
    """Steps all clients at once. Made for GPUs; on a CPU it is a loop's equal in results, not in speed."""

    precisions = ("float32", "tf32", "bf16")

    def __init__(
        self,
        problem: Problem,
        device: torch.device | str = "cpu",
        precision: str = "float32",
        compiled: bool | None = None,
    ) -> None:
        super().__init__(problem, device, precision)
        on_gpu = self.device.type == "cuda"
        gradient = torch.func.vmap(torch.func.grad(self._objective), randomness="different")
        self._gradient: Callable[..., Tensor] = gradient
        if on_gpu if compiled is None else compiled:
            self._gradient = torch.compile(gradient, dynamic=False)
        self._recorder = Recorder(self.device)
        self._most: int | None = None
        """So many trajectories fit into memory at once; None until it has run short."""

    # --- requests -------------------------------------------------------------------------------------------

    def ask(self, request: Request, cohort: Cohort) -> Replies:
        """The cohort's answers, in one computation."""
        return self.ask_together([(request, cohort)])[0]

    def ask_together(self, calls: Sequence[tuple[Request, Cohort]]) -> list[Replies]:
        """The answers to several runs' requests, their trajectories stacked together."""
        reports = [self._reports(request, cohort) for request, cohort in calls]
        wanted = [self._trajectories(request, cohort) for request, cohort in calls]
        results: list[Tensor | None] = [None] * len(calls)
        for shape in dict.fromkeys(trajectories[0].shape for trajectories in wanted if trajectories):
            members = [i for i, trajectories in enumerate(wanted) if trajectories and trajectories[0].shape == shape]
            moved = self._compute([trajectory for i in members for trajectory in wanted[i]], shape)
            sizes = [len(wanted[i]) for i in members]
            for i, result in zip(members, torch.split(moved, sizes), strict=True):
                results[i] = result
        return [
            self._reply(request, cohort, result, report)
            for (request, cohort), result, report in zip(calls, results, reports, strict=True)
        ]

    def _trajectories(self, request: Request, cohort: Cohort) -> list[Trajectory]:
        m = self.layout.tasks
        match request:
            case Train(theta, weights, _, first):
                w = torch.full((m,), 1 / m) if weights is None else weights
                kept = None if first is None else [w.to(theta) @ reply.kept for reply in first.each]
                return [
                    Trajectory(cohort, k, theta, w, first=None if kept is None else kept[j])
                    for j, k in enumerate(cohort.clients)
                ]
            case TaskUpdates(theta):
                return [Trajectory(cohort, k, theta, w, i) for k in cohort.clients for i, w in enumerate(torch.eye(m))]
            case TaskGradients(theta):
                return [
                    Trajectory(cohort, k, theta, w, GRADIENT_PART + i)
                    for k in cohort.clients
                    for i, w in enumerate(torch.eye(m))
                ]
            case GramTerms():
                return []

    def _reply(self, request: Request, cohort: Cohort, result: Tensor | None, reports: Tensor | None) -> Replies:
        m, d = self.layout.tasks, self.layout.d
        match request:
            case Train():
                assert result is not None
                return TrainReplies(cohort, self.layout, result.mean(dim=0), reports)
            case TaskUpdates():
                assert result is not None
                return TaskUpdateReplies(cohort, self.layout, result.view(len(cohort), m, d).mean(dim=0))
            case TaskGradients(_, extra_upload):
                assert result is not None
                kept = result.view(len(cohort), m, d)
                rngs = [cohort.stream(Purpose.COMPRESSION, k) for k in cohort.clients]
                sent = compress_all(self.layout.shared(kept).mT, extra_upload, rngs)
                each = tuple(TaskGradientsReply(c, a) for c, a in zip(sent, kept, strict=True))
                return TaskGradientReplies(cohort, self.layout, each)
            case GramTerms():
                return collect(
                    request, cohort, self.layout, (self.client.answer(request, cohort, k) for k in cohort.clients)
                )

    # --- reports --------------------------------------------------------------------------------------------

    @torch.no_grad()
    def _reports(self, request: Request, cohort: Cohort) -> Tensor | None:
        """F̂_k of every client, M × m: one pass over all their examples, since all report at the same model."""
        if not isinstance(request, Train) or request.report is None:
            return None
        clients = self.problem.clients
        chosen = [
            clients[k][
                report_positions(cohort.stream(Purpose.REPORT, k), len(clients[k]), cohort.local, request.report)
            ]
            for k in cohort.clients
        ]
        owner = torch.from_numpy(np.repeat(np.arange(len(chosen)), [len(c) for c in chosen])).to(self.device)
        index = torch.from_numpy(np.concatenate(chosen)).to(self.device)
        total = torch.zeros(len(chosen), self.layout.tasks, dtype=torch.float64, device=self.device)
        for start in range(0, len(index), self.chunk):
            batch = self.client.ready(self.client.train_examples[index[start : start + self.chunk]])
            losses = self.client.example_losses(request.model, batch, training=False)
            total.index_add_(0, owner[start : start + self.chunk], losses.double().T)
        sizes = torch.tensor([len(c) for c in chosen], device=self.device)
        return (total / sizes[:, None]).float().cpu()

    # --- trajectories ---------------------------------------------------------------------------------------

    def _objective(
        self, theta: Tensor, inputs: Tensor, targets: tuple[Tensor, ...], weights: Tensor, shares: Tensor
    ) -> Tensor:
        with self._autocast():
            return self.client.objective(theta, Examples(inputs, targets), weights, shares)

    def _autocast(self) -> AbstractContextManager[object]:
        if self.precision != "bf16":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False)

    def _compute(self, stack: Sequence[Trajectory], shape: Shape) -> Tensor:
        """Δθ of every trajectory (or its gradient, for single ones), in pieces that fit into memory."""
        most = self._most or len(stack)
        try:
            run = self._function(shape)
            pieces = [stack[i : i + most] for i in range(0, len(stack), most)]
            with torch.random.fork_rng(devices=[]):  # what dropout draws leaves no trace
                return torch.cat([self._recorder(shape, run, self._inputs(p, shape)).clone() for p in pieces])
        except torch.cuda.OutOfMemoryError:
            if most == 1:
                raise FedHVError("One client does not fit into the GPU's memory. Use a smaller batch size.") from None
            self._recorder.forget()
            self._most = (min(most, len(stack)) + 1) // 2
            self.notes.append(f"GPU memory is short: trajectories are computed {self._most} at a time.")
            return self._compute(stack, shape)

    def _inputs(self, stack: Sequence[Trajectory], shape: Shape) -> dict[str, Tensor]:
        """Everything that the computation of one stack reads, as tensors of fixed shape."""
        b = shape.batch_size
        draws = [draw_minibatches(self.problem, t.cohort, t.client, shape.minibatches, t.part) for t in stack]
        index = np.zeros((shape.minibatches, len(stack), b), np.int64)
        shares = np.zeros((len(stack), b), np.float32)
        for j, (t, (positions, _)) in enumerate(zip(stack, draws, strict=True)):
            # A client with fewer examples than a minibatch repeats its first one, which then has no share.
            size = positions.shape[1]
            index[:, j] = self.problem.clients[t.client][_padded(positions, b)]
            shares[j, :size] = 1 / size
        torch.manual_seed(stack[0].cohort.torch_seed(Purpose.DROPOUT, stack[0].client, stack[0].part))
        inputs = {
            "theta": torch.stack([t.model for t in stack]),
            "weights": torch.stack([t.weights for t in stack]).to(self.device),
            "index": self._tensor(index),
            "shares": self._tensor(shares),
            "rate": self._tensor(np.array([[t.cohort.local.learning_rate] for t in stack], np.float32)),
        }
        effects = [_padded(effect, b) for _, effect in draws if effect is not None]
        if effects:
            inputs["effects"] = self._tensor(np.stack(effects, axis=1))
        if shape.known:
            inputs["first"] = torch.stack([t.first for t in stack if t.first is not None])
        return inputs

    def _function(self, shape: Shape) -> Callable[..., Tensor]:
        """The computation of a stack, as a function of its inputs alone."""

        def run(
            theta: Tensor,
            weights: Tensor,
            index: Tensor,
            shares: Tensor,
            rate: Tensor,
            effects: Tensor | None = None,
            first: Tensor | None = None,
        ) -> Tensor:
            def gradient(step: int) -> Callable[[Tensor], Tensor]:
                draws = None if effects is None else effects[step].flatten(0, 1)
                batch = self.client.ready(self.client.train_examples[index[step].flatten()], draws, channels_last=False)
                inputs = batch.inputs.view(*shares.shape, *batch.inputs.shape[1:])
                targets = tuple(target.view(*shares.shape, *target.shape[1:]) for target in batch.targets)
                return lambda theta: self._gradient(theta, inputs, targets, weights, shares)

            steps = (gradient(step) for step in range(shape.minibatches))
            if shape.single:
                return next(steps)(theta)
            known: list[Callable[[Tensor], Tensor]] = [] if first is None else [lambda theta: first]
            return descend(theta, (g for source in (known, steps) for g in source), rate, shape.momentum) - theta

        return run

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device, non_blocking=True)


def _padded(draws: np.ndarray, b: int) -> np.ndarray:
    """Draws of shape (steps, size, …) with zeros up to (steps, b, …)."""
    if draws.shape[1] == b:
        return draws
    return np.pad(draws, ((0, 0), (0, b - draws.shape[1]), *[(0, 0)] * (draws.ndim - 2)))
