"""The whole cohort as one batched computation: `vmap` of the client's functions.

The scripts of all clients of all runs are advanced in step, and their pending computations are computed together. Local
training and gradients are trajectories: K steps of a client from θ with given weights. Trajectories are stacked (see
`stacked_training`). Losses need no stack: all clients of a run report at the same θ, so their examples are one batch.

Random draws of a model (dropout) are functions of a key for every client and step, as on the other engines. They do not
depend on which trajectories are stacked together.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from fedhv.engines import stacked_draws
from fedhv.engines.autocast import Bfloat16
from fedhv.engines.base import Engine
from fedhv.engines.cohort_losses import EXAMPLES, CohortLosses, round_up
from fedhv.engines.first_gradient import quiet_first_gradient
from fedhv.engines.formulations import with_mappable_layers
from fedhv.engines.formulations.obstacles import is_obstacle, reason
from fedhv.engines.graphs import Recorder
from fedhv.engines.interruptible import Interruptible
from fedhv.engines.kernels.ahead import compile_all
from fedhv.engines.kernels.fusion import weight_axes, with_stacked_kernels
from fedhv.engines.kernels.preparing import has_kernels, prepare_kernels
from fedhv.engines.lockstep import Waiting, advance
from fedhv.engines.parts import parts
from fedhv.engines.portions import Portion
from fedhv.engines.stacked_steps import StackedSteps
from fedhv.engines.stacked_training import SCALARS, StackedTraining, evenly
from fedhv.engines.trajectories import Trajectory
from fedhv.engines.weight_order import WeightOrder
from fedhv.problem.problem import Problem
from fedhv.problem.random import Purpose
from fedhv.protocol.compression import Compressed, compress_all
from fedhv.protocol.exchange import Call, Collector
from fedhv.protocol.request import Replies
from fedhv.protocol.script import Compress, Computation, Descend, Gradient, HeldOut, Judged, Losses, Member
from fedhv.protocol.sums import Partial

T = TypeVar("T")

MODES = 1000
"""The number of rounds whose mode is remembered."""


class Stacked(Engine):
    """Computes all clients at once. For GPUs; on a CPU it is as fast as a loop, and faster for small dense models."""

    precisions = ("float32", "tf32", "bf16")

    def __init__(
        self,
        problem: Problem,
        device: torch.device | str = "cpu",
        precision: str = "float32",
        compiled: bool | None = None,
    ) -> None:
        super().__init__(problem, device, precision)
        self._plain = self.client.network.module
        self.obstacle: str | None = None
        """Why clients are computed one after the other, if the stack failed."""
        self.ahead = on_gpu = self.device.type == "cuda"
        if on_gpu and importlib.util.find_spec("triton") is not None:
            importlib.import_module("fedhv.engines.kernels.draws")  # defines the operator for GPUs
        stacked_draws.install()
        kernels = has_kernels(self.device, precision)
        prepare_kernels(self.device, precision)
        self.steps = StackedSteps(self.client, precision, lambda: self.stopping())
        self.training = StackedTraining(
            self.client,
            self.steps,
            Recorder(self.device, self.watching),
            compiled if on_gpu or compiled else False,
            lambda: self.rounds,
            self.notes,
        )
        self._install(with_stacked_kernels(self._plain) if kernels else self._plain)
        self._ready = not kernels
        """Whether the kernels are compiled, or there are none."""
        self._modes: dict[int, dict[str, Any]] = {}
        self._reports = CohortLosses(self.client, self.chunk, self.steps.autocast, self.training.forget)
        self._largest = int(problem.clients.sizes.max())
        self._compressions = Portion(
            SCALARS,
            "GPU memory is short: the gradients of {size} clients at a time are compressed.",
            "One client's compression does not fit into the GPU's memory. Lower the method's extra_upload.",
            self.notes,
            self.device,
        )

    def _install(self, module: nn.Module) -> None:
        """Stack this module, with its weights in the order of its kernels."""
        self.client.network.module = with_mappable_layers(module)
        self.training.use(WeightOrder(self.layout, weight_axes(module)))

    # --- scripts --------------------------------------------------------------------------------------------

    def ask(self, call: Call) -> Replies:
        """The replies of the cohort, in one computation."""
        return self.ask_together([call])[0]

    def ask_together(self, calls: Sequence[Call]) -> list[Replies]:
        """The replies to the requests of several runs, with all their clients in one stack."""
        if not self._ready:
            self._compile_kernels(calls)
        pieces = [parts(call.cohort.clients) for call in calls]
        if any(len(each) > 1 for each in pieces):
            self.training.prefetches = False  # the next round draws for a whole cohort, not for parts of it
            return [self._collected([call], [each])[0] for call, each in zip(calls, pieces, strict=True)]
        return self._collected(calls, pieces)

    def _collected(self, calls: Sequence[Call], pieces: Sequence[Sequence[Sequence[int]]]) -> list[Replies]:
        """The combined replies of the calls; the cohorts are computed in parts."""
        collectors = [
            Collector(call, self.layout, self.client.holding, to_host=self._reports.copies.read) for call in calls
        ]
        for some in zip(*pieces, strict=True):
            answers = self._answers(calls, some)
            for collector, clients, replies in zip(collectors, some, answers, strict=True):
                collector.take_stack(clients, replies)
        found = [collector.replies() for collector in collectors]
        self._reports.copies.clear()
        return found

    def summed(self, call: Call) -> Partial:
        """The sums over a part of a cohort that is computed at once."""
        if not self._ready:
            self._compile_kernels([call])
        collector = Collector(call, self.layout, self.client.holding)
        (answers,) = self._answers([call], [call.cohort.clients])
        collector.take_stack(call.cohort.clients, answers)
        self._reports.copies.clear()
        return collector.partial

    def _answers(self, calls: Sequence[Call], clients: Sequence[Sequence[int]]) -> list[list[Any]]:
        """The replies of some clients of every call. Their scripts are advanced in step."""
        members = [(call, self.client.member(call, k)) for call, some in zip(calls, clients, strict=True) for k in some]
        replies = iter(advance([(call.request.answer(me), me) for call, me in members], self._computed))
        return [[next(replies) for _ in some] for some in clients]

    def _computed(self, waiting: Sequence[Waiting]) -> list[Any]:
        """The results of pending computations; those of the same kind are computed together."""
        kinds: dict[Any, list[int]] = {}
        stack = [_trajectory(work, me) for work, me in waiting]
        for i, (work, _) in enumerate(waiting):
            kinds.setdefault(self._kind(work, stack[i]), []).append(i)
        results: list[Any] = [None] * len(waiting)
        for places in kinds.values():
            some = [waiting[i] for i in places]
            found: Sequence[Any]
            match some[0][0]:
                case Losses() if self.layout.resident:  # no two clients have the same model
                    found = self._passed(some)
                case Losses():
                    found = self._losses(some)
                case Descend() | Gradient():
                    found = self._moved(some, [each for i in places if (each := stack[i]) is not None])
                case Compress():
                    found = self._compress(some)
                case HeldOut() | Judged():
                    found = self._passed(some)
                case _:
                    found = [work.alone(self.client, me) for work, me in some]
            for i, result in zip(places, found, strict=True):
                results[i] = result
        return results

    def _kind(self, work: Computation, trajectory: Trajectory | None) -> tuple[Any, ...]:
        """Computations with equal kind can be computed together."""
        if trajectory is not None:
            return Descend, trajectory.shape(self._largest)
        match work:
            case Losses(at=theta):
                return Losses, id(theta)
            case Compress(extra_upload=extra_upload):
                return Compress, extra_upload
        return (type(work),)

    def _moved(self, some: Sequence[Waiting], stack: Sequence[Trajectory]) -> Sequence[Tensor]:
        """The updates or gradients of trajectories of one shape. If a stack fails, a simpler way is used."""
        noted = len(self.notes)
        while self.obstacle is None:
            try:
                found = self._stacked(some, stack)
                self._note_mode(stack, {"compiled": True} if self.training.compiled_last else {})
                return found
            except Exception as error:
                if not is_obstacle(error):
                    raise
                why = reason(error)
            # After the handler, when the memory of the failed attempt is free.
            self.training.forget()
            if not self.training.simplify(why):
                self._give_up(why, noted)
        self._note_mode(stack, {"engine": "sequential"})
        return [self._alone(work, me) for work, me in some]

    def _alone(self, work: Computation, me: Member) -> Any:
        """The result of one client's computation; KeyboardInterrupt if a signal has arrived."""
        self.steps.check_stopping()
        return work.alone(self.client, me)

    def _give_up(self, why: str, noted: int) -> None:
        """Compute clients one after the other from now on, with torch's own layers.

        Messages from `noted` on are about this failure; one that says this replaces them.
        """
        self.training.forget()
        self.obstacle, self.training.prefetches = why, False
        self.client.network.module = self._plain
        if self.precision == "bf16":
            self.client.network = Bfloat16(self.client.network, self.device)
        self.notes[noted:] = [f"Clients are computed one after the other. The model cannot be stacked: {why}."]

    def _or_plainly(self, compute: Callable[[], T]) -> T:
        """The result of forward passes; if the layers of the stack fail, with torch's own layers."""
        noted = len(self.notes)
        try:
            return compute()
        except Exception as error:
            if self.obstacle is not None or not is_obstacle(error):
                raise
            why = reason(error)
        # After the handler, when the memory of the failed attempt is free.
        self._give_up(why, noted)
        return compute()

    def release(self) -> None:
        """Free the memory of recordings too."""
        self.training.forget()

    def warmed_up(self) -> float:
        """The seconds of compilations and recordings since the last call."""
        recorder = self.training.recorder
        spent, recorder.seconds = recorder.seconds, 0.0
        return spent

    def measured(self, number: int) -> dict[str, Any]:
        """Whether clients were computed one after the other, or by compiled code, for the history."""
        return self._modes.get(number, {})

    def _note_mode(self, stack: Sequence[Trajectory], mode: dict[str, Any]) -> None:
        """Remember how a round was computed: it is recorded when the next one may already have begun."""
        for number in {t.cohort.round + 1 for t in stack}:
            self._modes[number] = mode
        while len(self._modes) > MODES:
            del self._modes[next(iter(self._modes))]

    def _stacked(self, some: Sequence[Waiting], stack: Sequence[Trajectory]) -> Sequence[Tensor]:
        """The updates or gradients of trajectories of one shape, as rows of one tensor."""
        shape = stack[0].shape(self._largest)
        found = self.training(stack, shape)
        if shape.keeps:
            found, *state = torch.split(found, [self.layout.d, *shape.rule.widths(self.layout.d)], dim=1)
            for i, (work, me) in enumerate(some):
                if isinstance(work, Descend):
                    me.keep_optimiser_state(work.part, [each[i].clone() for each in state])
        if self.layout.resident and not shape.single:
            for t, (work, me), update in zip(stack, some, found, strict=True):
                if isinstance(work, Descend):
                    me.keep_layers(work.part, t.model + update)
            found = found.masked_fill(self.layout.resident_entries.to(self.device), 0)
        return list(found.unbind())

    def _compress(self, some: Sequence[Waiting]) -> list[Compressed]:
        """The clients' compressed task gradients, computed together as far as memory allows."""

        def made(most: int) -> list[Compressed]:
            found: list[Compressed] = []
            for piece in evenly(some, most):
                works = [work for work, _ in piece if isinstance(work, Compress)]
                found += compress_all(
                    torch.stack([self.layout.shared(work.gradients) for work in works]).mT,
                    works[0].extra_upload,
                    [me.stream(Purpose.COMPRESSION) for _, me in piece],
                )
            return found

        return self._compressions(len(some), made, self.training.forget)

    # --- losses -------------------------------------------------------------------------------------------------

    def _losses(self, some: Sequence[Waiting]) -> Sequence[Tensor]:
        """The m losses of every client at one model: one pass over all their examples."""
        pairs = [(work, me) for work, me in some if isinstance(work, Losses)]
        chosen = [self.problem.clients[me.client][work.on] for work, me in pairs]
        return self._or_plainly(lambda: self._reports.at(pairs[0][0].at, chosen, self.training.recorder))

    def _passed(self, some: Sequence[Waiting]) -> list[Any]:
        """The results of clients whose models or examples are not those of a cohort: one pass for each."""

        def alone() -> list[Any]:
            with self.steps.autocast():
                return [work.alone(self.client, me) for work, me in some]

        return self._or_plainly(alone)

    @torch.no_grad()
    def _assess(self, model: Tensor, start: int, chunk: int) -> Tensor:
        def run(theta: Tensor) -> Tensor:
            with self.steps.autocast():
                return super(Stacked, self)._assess(theta, start, chunk)

        key = "assess", start, chunk
        return self._or_plainly(lambda: self.training.recorder.carefully(key, run, {"theta": model}).clone())

    def _metrics(self, model: Tensor) -> list[dict[str, float]]:
        return self._or_plainly(lambda: super(Stacked, self)._metrics(model))

    def _compile_kernels(self, calls: Sequence[Call]) -> None:
        """Compile the kernels of a step and of a report before the first round, several at once."""
        from fedhv.engines.kernels import starting

        self._ready = True
        # An error shows again in the computation itself.
        with (
            suppress(Exception),
            quiet_first_gradient(),
            Interruptible(lambda: self.stopping()),
            starting.planning() as planned,
        ):
            n, b = sum(len(call.cohort) for call in calls), calls[0].cohort.local.batch_size
            n = min(n, self.training.most.size)
            first = torch.zeros(n * b, dtype=torch.int64, device=self.device)
            theta, weights, shares = (
                torch.zeros(n, size, device=self.device) for size in (self.layout.d, self.layout.tasks, b)
            )
            batch = self.steps.batch(first, shares.shape)
            self.steps.gradients(theta, *batch, weights, shares, first[:n])
            with torch.no_grad():
                self._reports.example_losses(theta[0], first[:1].expand(round_up(n * b, EXAMPLES)))
            del batch
        compile_all(dict.fromkeys(planned), self.stopping)


def _trajectory(work: Computation, me: Member) -> Trajectory | None:
    """What a client's script waits for, if that is a trajectory."""
    return Trajectory.of(cast("Descend | Gradient", work), me) if _moves(type(work)) else None


@functools.cache
def _moves(kind: type[Computation]) -> bool:
    """Whether computations of a kind are trajectories; asked for every client, which is slow of an abstract class."""
    return issubclass(kind, Descend | Gradient)
