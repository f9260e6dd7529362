"""The whole cohort as one batched computation: `vmap` of the one client definition.

Every request comes down to trajectories: a client's K steps from θ under some weights. All trajectories of all runs
that wait at the same time are stacked and stepped together; on a GPU a round is compiled once and then replayed as
a CUDA graph. Reports need no stack: all clients of a run report at the same θ, so theirs is one plain batch.

What a model draws (dropout) follows from a key for every client and step, as on the other engines: it does not depend
on which trajectories are stacked together.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedhv.engines.ahead import Ahead
from fedhv.engines.base import Engine
from fedhv.engines.compiled import Compiled
from fedhv.engines.graphs import Recorder
from fedhv.engines.kernels.fusion import with_stacked_kernels
from fedhv.engines.parts import in_parts, parts
from fedhv.engines.portions import Portion
from fedhv.engines.trajectories import Shape, Trajectory, trajectories
from fedhv.problem.counter import keys
from fedhv.problem.problem import Examples, Problem
from fedhv.problem.random import Purpose
from fedhv.protocol.client import descend
from fedhv.protocol.cohort import Cohort, report_positions
from fedhv.protocol.compression import Compressed, compress_all
from fedhv.protocol.messages import (
    GramTerms,
    Refusal,
    Replies,
    Request,
    TaskGradients,
    TaskGradientsReply,
    TaskUpdateReplies,
    TaskUpdates,
    Train,
    TrainReplies,
    collect,
)

SCALARS = 360_000_000
"""So many parameters of stacked models fill a GPU; more at once would only take more memory."""


class Stacked(Engine):
    """Steps all clients at once. Made for GPUs; on a CPU it is a loop's equal, and faster for small dense models."""

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
        if on_gpu and precision != "float32" and importlib.util.find_spec("triton"):
            self.client.network.module = with_stacked_kernels(self.client.network.module)
        self.compiles = on_gpu if compiled is None else compiled
        self._gradient = Compiled(self._gradients) if self.compiles else self._gradients
        self.foresees = on_gpu
        self._recorder = Recorder(self.device)
        self._sizes: dict[Shape, set[int]] = {}
        self._ahead = Ahead(problem)
        self.most = Portion(
            SCALARS // self.layout.d,
            "GPU memory is short: trajectories are computed {size} at a time.",
            "One client does not fit into the GPU's memory. Use a smaller batch size.",
            self.notes,
        )
        """So many trajectories are computed at once."""
        self._compressions = Portion(
            SCALARS,
            "GPU memory is short: the gradients of {size} clients at a time are compressed.",
            "One client's compression does not fit into the GPU's memory. Lower the method's extra_upload.",
            self.notes,
        )

    # --- requests -------------------------------------------------------------------------------------------

    def ask(self, request: Request, cohort: Cohort) -> Replies:
        """The cohort's answers, in one computation."""
        return self.ask_together([(request, cohort)])[0]

    def ask_together(self, calls: Sequence[tuple[Request, Cohort]]) -> list[Replies]:
        """The answers to several runs' requests, their trajectories stacked together."""
        if any(len(parts(request, cohort)) > 1 for request, cohort in calls):
            self.foresees = False  # parts of a cohort are not what the next round will ask for
            return [in_parts(self.ask, request, cohort) for request, cohort in calls]  # large cohorts, streamed
        reports = [self._reports(request, cohort) for request, cohort in calls]
        wanted = [trajectories(request, cohort, self.layout.tasks) for request, cohort in calls]
        results: list[Tensor | None] = [None] * len(calls)
        for shape in dict.fromkeys(some[0].shape for some in wanted if some):
            members = [i for i, some in enumerate(wanted) if some and some[0].shape == shape]
            moved = self._compute([trajectory for i in members for trajectory in wanted[i]], shape)
            sizes = [len(wanted[i]) for i in members]
            for i, result in zip(members, torch.split(moved, sizes), strict=True):
                results[i] = result
        # Reports wait for the GPU; what the host has to draw for compression is drawn before, while the GPU works.
        sent = self._compressed(calls, results)
        return [
            self._reply(request, cohort, results[i], reports[i], sent.get(i))
            for i, (request, cohort) in enumerate(calls)
        ]

    def _compressed(
        self, calls: Sequence[tuple[Request, Cohort]], results: Sequence[Tensor | None]
    ) -> dict[int, list[Compressed]]:
        """What the clients of every call send of their task gradients, those of all runs compressed together."""
        groups: dict[float, list[int]] = {}
        for i, (request, _) in enumerate(calls):
            if isinstance(request, TaskGradients):
                groups.setdefault(request.extra_upload, []).append(i)
        sent: dict[int, list[Compressed]] = {}
        for extra_upload, members in groups.items():
            m, d = self.layout.tasks, self.layout.d
            gradients = [g for i in members if (result := results[i]) is not None for g in result.view(-1, m, d)]
            whose = [(calls[i][1], k) for i in members for k in calls[i][1].clients]
            made = iter(self._compress(gradients, whose, extra_upload))
            sent |= {i: [next(made) for _ in calls[i][1].clients] for i in members}
        return sent

    def _compress(
        self, gradients: Sequence[Tensor], whose: Sequence[tuple[Cohort, int]], extra_upload: float
    ) -> list[Compressed]:
        def made(most: int) -> list[Compressed]:
            return [
                compressed
                for some, clients in zip(_evenly(gradients, most), _evenly(whose, most), strict=True)
                for compressed in compress_all(
                    torch.stack([self.layout.shared(g) for g in some]).mT,
                    extra_upload,
                    [cohort.stream(Purpose.COMPRESSION, k) for cohort, k in clients],
                )
            ]

        return self._compressions(len(whose), made, self._forget)

    def _reply(
        self,
        request: Request,
        cohort: Cohort,
        result: Tensor | None,
        reports: Tensor | None,
        sent: list[Compressed] | None,
    ) -> Replies:
        m, d = self.layout.tasks, self.layout.d
        match request:
            case Train():
                assert result is not None
                losses = None if reports is None else reports.cpu()  # waits for the GPU, so only now
                result, losses, taken, refused = self._taken(request, cohort, result, losses)
                return TrainReplies(taken, self.layout, _mean(result), losses, refused=refused)
            case TaskUpdates():
                assert result is not None
                result, _, taken, refused = self._taken(request, cohort, result.view(len(cohort), m, d), None)
                return TaskUpdateReplies(taken, self.layout, _mean(result), refused=refused)
            case TaskGradients():
                assert result is not None
                assert sent is not None
                kept = result.view(len(cohort), m, d)
                each = (TaskGradientsReply(c, a) for c, a in zip(sent, kept, strict=True))
                return collect(request, cohort, self.layout, each)
            case GramTerms(total, gradients):
                S = total.dense()
                terms = (self.client.gram_terms(gradients.of(k), S) for k in cohort.clients)
                return collect(request, cohort, self.layout, terms)

    def _taken(
        self, request: Request, cohort: Cohort, result: Tensor, reports: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Cohort, tuple[Refusal, ...]]:
        """What the server takes of the stack, and whom it leaves out."""
        if cohort.intake is None:
            return result, reports, cohort, ()
        return cohort.intake.receive_stack(request, cohort, self.layout, result, reports)

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
        theta = request.model

        def summed(chunk: int) -> Tensor:
            total = torch.zeros(len(chosen), self.layout.tasks, dtype=torch.float64, device=self.device)
            for start in range(0, len(index), chunk):
                batch = self.client.ready(self.client.train_examples[index[start : start + chunk]])
                with self._autocast():
                    losses = self.client.example_losses(theta, batch, training=False)
                total.index_add_(0, owner[start : start + chunk], losses.double().T)
            return total

        sizes = torch.tensor([len(c) for c in chosen], device=self.device)
        return (self.chunk(len(index), summed) / sizes[:, None]).float()

    def _assess(self, model: Tensor, start: int, chunk: int) -> Tensor:
        with self._autocast():
            return super()._assess(model, start, chunk)

    # --- trajectories ---------------------------------------------------------------------------------------

    def _gradients(
        self, theta: Tensor, inputs: Tensor, targets: tuple[Tensor, ...], weights: Tensor, shares: Tensor, key: Tensor
    ) -> Tensor:
        """∇L of every client, n × d: no client's loss depends on another's θ, so one gradient of their sum is all."""
        theta = theta.detach().requires_grad_()
        mapped = torch.func.vmap(self._objective, randomness="different")
        with torch.enable_grad():
            losses = mapped(theta, inputs, targets, weights, shares, key)
            (gradients,) = torch.autograd.grad(losses.sum(), theta)
        return gradients

    def _objective(
        self, theta: Tensor, inputs: Tensor, targets: tuple[Tensor, ...], weights: Tensor, shares: Tensor, key: Tensor
    ) -> Tensor:
        with self._autocast():
            return self.client.objective(theta, Examples(inputs, targets), weights, shares, key)

    def _autocast(self) -> AbstractContextManager[object]:
        if self.precision != "bf16":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False)

    def _compute(self, stack: Sequence[Trajectory], shape: Shape) -> Tensor:
        """Δθ of every trajectory (or its gradient, for single ones), in pieces that fit into memory."""
        run = self._function(shape)

        def moved(most: int) -> Tensor:
            with torch.random.fork_rng(devices=[]):  # what torch's generator draws leaves no trace
                return torch.cat(
                    [
                        self._recorder(shape, run, self._inputs(self._filled(p, shape), shape))[: len(p)].clone()
                        for p in _evenly(stack, most)
                    ]
                )

        result = self.most(len(stack), moved, self._forget)
        if self.foresees:
            self._ahead.foresee(stack, shape)
        return result

    def _forget(self) -> None:
        """Give back the memory of everything that was recorded."""
        self._recorder.forget()
        self._sizes.clear()

    def _filled(self, stack: Sequence[Trajectory], shape: Shape) -> Sequence[Trajectory]:
        """The stack, filled up to a size that is compiled already where that is less than twice the work.

        Runs of a study end one after the other, and a new size costs a compilation.
        """
        sizes = self._sizes.setdefault(shape, set())
        size = min((known for known in sizes if len(stack) <= known <= 2 * len(stack)), default=len(stack))
        if self.compiles:
            sizes.add(size)
        return [*stack, *[stack[-1]] * (size - len(stack))]

    def _inputs(self, stack: Sequence[Trajectory], shape: Shape) -> dict[str, Tensor]:
        """Everything that the computation of one stack reads, as tensors of fixed shape."""
        b = shape.batch_size
        draws = [self._ahead.of(t, shape) for t in stack]
        index = np.zeros((shape.minibatches, len(stack), b), np.int64)
        shares = np.zeros((len(stack), b), np.float32)
        for j, (t, (positions, _)) in enumerate(zip(stack, draws, strict=True)):
            # A client with fewer examples than a minibatch repeats its first one, which then has no share.
            size = positions.shape[1]
            index[:, j] = self.problem.clients[t.client][_padded(positions, b)]
            shares[j, :size] = 1 / size
        # For draws that keys do not cover: at least they repeat where the stack is the same.
        torch.manual_seed(stack[0].cohort.torch_seed(Purpose.DROPOUT, stack[0].client, stack[0].part))
        inputs = {
            "theta": torch.stack([t.model for t in stack]),
            "weights": torch.stack([t.weights for t in stack]).to(self.device),
            "index": self._tensor(index),
            "shares": self._tensor(shares),
            "key": self._tensor(
                keys(Purpose.DROPOUT, [t.cohort.place(t.client, t.part) for t in stack], shape.minibatches)
            ),
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
            key: Tensor,
            rate: Tensor,
            effects: Tensor | None = None,
            first: Tensor | None = None,
        ) -> Tensor:
            def gradient(step: int) -> Callable[[Tensor], Tensor]:
                draws = None if effects is None else effects[step].flatten(0, 1)
                batch = self.client.ready(self.client.train_examples[index[step].flatten()], draws, channels_last=False)
                inputs = batch.inputs.view(*shares.shape, *batch.inputs.shape[1:])
                targets = tuple(target.view(*shares.shape, *target.shape[1:]) for target in batch.targets)
                return lambda theta: self._gradient(theta, inputs, targets, weights, shares, key[step])

            steps = (gradient(step) for step in range(shape.minibatches))
            if shape.single:
                return next(steps)(theta)
            known: list[Callable[[Tensor], Tensor]] = [] if first is None else [lambda theta: first]
            return descend(theta, (g for source in (known, steps) for g in source), rate, shape.momentum) - theta

        return run

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device, non_blocking=True)


def _evenly(many: Any, most: int) -> list[Any]:
    """A sequence in parts of at most so many; sizes differ by one at most, the largest first.

    Smaller ones are filled up to it, so that one size is compiled.
    """
    count = -(-len(many) // most)
    bounds = [-(-len(many) * i // count) for i in range(count + 1)]
    return [many[start:end] for start, end in pairwise(bounds)]


def _mean(results: Tensor) -> Tensor:
    """Over clients; zero where none is left."""
    return results.mean(dim=0) if len(results) else results.new_zeros(results.shape[1:])


def _padded(draws: np.ndarray, b: int) -> np.ndarray:
    """Draws of shape (steps, size, …) with zeros up to (steps, b, …)."""
    if draws.shape[1] == b:
        return draws
    return np.pad(draws, ((0, 0), (0, b - draws.shape[1]), *[(0, 0)] * (draws.ndim - 2)))
