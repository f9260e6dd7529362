"""The whole cohort as one batched computation: `vmap` of the client's functions.

The scripts of all clients of all runs are advanced in step, and their pending computations are computed together. Local
training and gradients are trajectories: K steps of a client from θ with given weights. Trajectories are stacked. On a
GPU a round is recorded once and then replayed as a CUDA graph. Losses need no stack: all clients of a run report at the
same θ, so their examples are one batch.

A run begins without compilation; long runs are compiled between two rounds (see `switching`).

Random draws of a model (dropout) are functions of a key for every client and step, as on the other engines. They do not
depend on which trajectories are stacked together.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from fedhv.engines import stacked_draws
from fedhv.engines.autocast import Bfloat16
from fedhv.engines.base import Engine
from fedhv.engines.cohort_losses import EXAMPLES, CohortLosses, round_up
from fedhv.engines.compiled import Compiled
from fedhv.engines.first_gradient import quiet_first_gradient
from fedhv.engines.formulations import mappable_calls, with_mappable_layers
from fedhv.engines.formulations.obstacles import is_obstacle, reason
from fedhv.engines.graphs import Recorder
from fedhv.engines.interruptible import Interruptible
from fedhv.engines.kernels.ahead import compile_all
from fedhv.engines.kernels.fusion import weight_axes, with_stacked_kernels
from fedhv.engines.kernels.preparing import has_kernels, prepare_kernels
from fedhv.engines.lockstep import Waiting, advance
from fedhv.engines.parts import parts
from fedhv.engines.portions import Portion
from fedhv.engines.stack_inputs import StackInputs
from fedhv.engines.switching import compiles_in
from fedhv.engines.trajectories import StackShape, Trajectory
from fedhv.engines.weight_order import WeightOrder
from fedhv.problem.problem import Examples, Problem
from fedhv.problem.random import Purpose
from fedhv.problem.trees import Inputs
from fedhv.protocol.compression import Compressed, compress_all
from fedhv.protocol.exchange import Call, Collector
from fedhv.protocol.local import Term, descend
from fedhv.protocol.request import Replies
from fedhv.protocol.script import Compress, Computation, Descend, Gradient, HeldOut, Judged, Losses, Member
from fedhv.protocol.sums import Partial

T = TypeVar("T")

SCALARS = 360_000_000
"""The number of parameters of stacked models that saturates a GPU. More at once only need more memory."""


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
        on_gpu = self.device.type == "cuda"
        self._plain = self.client.network.module
        self.obstacle: str | None = None
        """Why clients are computed one after the other, if the stack failed."""
        if on_gpu and importlib.util.find_spec("triton") is not None:
            importlib.import_module("fedhv.engines.kernels.draws")  # defines the operator for GPUs
        stacked_draws.install()
        self._kernels = has_kernels(self.device, precision)
        prepare_kernels(self.device, precision)
        self.compiles = compiled if on_gpu or compiled else False
        """Whether rounds are compiled: all, none, or (None) from a round on if there are many (see `switching`)."""
        self._compiled = Compiled(self._gradients, lambda: self.stopping())
        self._compiled_last = False
        self._install(with_stacked_kernels(self._plain) if self._kernels else self._plain)
        self._ready = not self._kernels
        self._modes: dict[int, dict[str, Any]] = {}
        self.prefetches = self.ahead = on_gpu
        self._recorder = Recorder(self.device, self.watching)
        self._sizes: dict[StackShape, set[int]] = {}
        self._announced = False
        self._reports = CohortLosses(self.client, self.chunk, self._autocast, self._forget)
        self._largest = int(problem.clients.sizes.max())
        self._inputs = StackInputs(problem, self.device)
        self.most = Portion(
            SCALARS // self.layout.d,
            "GPU memory is short: trajectories are computed {size} at a time.",
            "One client does not fit into the GPU's memory. Use a smaller batch size.",
            self.notes,
        )
        """The number of trajectories that are computed at once."""
        self._compressions = Portion(
            SCALARS,
            "GPU memory is short: the gradients of {size} clients at a time are compressed.",
            "One client's compression does not fit into the GPU's memory. Lower the method's extra_upload.",
            self.notes,
        )

    def _install(self, module: nn.Module) -> None:
        """Stack this module, with its weights in the order of its kernels."""
        self.client.network.module = with_mappable_layers(module)
        self._use(WeightOrder(self.layout, weight_axes(module)))
        self._proven = self._order
        """The order of the last stack that was computed; before the first, the order of the kernels."""

    def _use(self, order: WeightOrder) -> None:
        """Compute steps in this order from now on. Compiled code contains the order that it was traced with."""
        self._order = order
        self._compiled.forget()

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
            self.prefetches = False  # the next round draws for a whole cohort, not for parts of it
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
                self._proven = self._order
                self._note_mode(stack, {"compiled": True} if self._compiled_last else {})
                return found
            except Exception as error:
                if not is_obstacle(error):
                    raise
                why = reason(error)
            # After the handler, when the memory of the failed attempt is free.
            self._simplify(why, noted)
        self._note_mode(stack, {"engine": "sequential"})
        return [self._alone(work, me) for work, me in some]

    def _alone(self, work: Computation, me: Member) -> Any:
        """The result of one client's computation; KeyboardInterrupt if a signal has arrived."""
        self._check_stopping()
        return work.alone(self.client, me)

    def _check_stopping(self) -> None:
        if self.stopping():
            raise KeyboardInterrupt

    def _simplify(self, why: str, noted: int) -> None:
        """Stop using an own order of weights, then compilation, CUDA graphs, the stack.

        Messages from `noted` on are about this failure.
        """
        self._forget()
        if self._order.changes:  # a model may view its weights in a way that needs their usual order
            self._use(WeightOrder(self.layout, {}))
            return
        self._use(self._proven)  # if the order was changed for this failure, it was not the reason
        if self._compiled_last:
            self.compiles = self._compiled_last = False
            self.notes.append(f"The stack is computed without compilation, which failed: {why}.")
        elif self._recorder.records:
            self._recorder = Recorder(torch.device("cpu"))  # calls functions without recording
            self.notes.append(f"The stack is computed without CUDA graphs, which failed: {why}.")
        else:
            self._give_up(why, noted)

    def _give_up(self, why: str, noted: int) -> None:
        """Compute clients one after the other from now on, with torch's own layers."""
        self._forget()
        self.obstacle, self.prefetches = why, False
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

    def warmed_up(self) -> float:
        """The seconds of compilations and recordings since the last call."""
        spent, self._recorder.seconds = self._recorder.seconds, 0.0
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
        found = self._compute(stack, shape)
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
            for piece in _evenly(some, most):
                works = [work for work, _ in piece if isinstance(work, Compress)]
                found += compress_all(
                    torch.stack([self.layout.shared(work.gradients) for work in works]).mT,
                    works[0].extra_upload,
                    [me.stream(Purpose.COMPRESSION) for _, me in piece],
                )
            return found

        return self._compressions(len(some), made, self._forget)

    # --- losses -------------------------------------------------------------------------------------------------

    def _losses(self, some: Sequence[Waiting]) -> Sequence[Tensor]:
        """The m losses of every client at one model: one pass over all their examples."""
        pairs = [(work, me) for work, me in some if isinstance(work, Losses)]
        chosen = [self.problem.clients[me.client][work.on] for work, me in pairs]
        return self._or_plainly(lambda: self._reports.at(pairs[0][0].at, chosen, self._recorder))

    def _passed(self, some: Sequence[Waiting]) -> list[Any]:
        """The results of clients whose models or examples are not those of a cohort: one pass for each."""

        def alone() -> list[Any]:
            with self._autocast():
                return [work.alone(self.client, me) for work, me in some]

        return self._or_plainly(alone)

    @torch.no_grad()
    def _assess(self, model: Tensor, start: int, chunk: int) -> Tensor:
        def run(theta: Tensor) -> Tensor:
            with self._autocast():
                return super(Stacked, self)._assess(theta, start, chunk)

        key = "assess", start, chunk
        return self._or_plainly(lambda: self._recorder.carefully(key, run, {"theta": model}).clone())

    def _metrics(self, model: Tensor) -> list[dict[str, float]]:
        return self._or_plainly(lambda: super(Stacked, self)._metrics(model))

    # --- trajectories ---------------------------------------------------------------------------------------

    def _gradients(
        self,
        theta: Tensor,
        inputs: Inputs,
        targets: tuple[Tensor, ...],
        masks: dict[int, Tensor],
        weights: Tensor,
        shares: Tensor,
        key: Tensor,
    ) -> Tensor:
        """∇L of every client, n × d: no client's loss depends on another's θ, so one gradient of their sum is all.

        θ and gradient are in the order of the stack. Running statistics after the pass are in the place of their
        gradient.
        """
        theta = theta.detach().requires_grad_()
        mapped = torch.func.vmap(self._objective, randomness="different")
        with torch.enable_grad():
            losses, *statistics = mapped(theta, inputs, targets, masks, weights, shares, key)
            (gradients,) = torch.autograd.grad(losses.sum(), theta)
        if self.client.entries is not None and statistics:
            return self.client.entries.with_statistics(gradients, statistics[0])
        return gradients

    def _objective(
        self,
        theta: Tensor,
        inputs: Inputs,
        targets: tuple[Tensor, ...],
        masks: dict[int, Tensor],
        weights: Tensor,
        shares: Tensor,
        key: Tensor,
    ) -> tuple[Tensor, ...]:
        """The loss, and the running statistics after the pass where θ has any."""
        labelled = tuple(masks.get(i) for i in range(len(targets))) if masks else None
        with self._autocast(), mappable_calls(self.device):
            parameters = self._order.named(theta)
            loss = self.client.objective(parameters, Examples(inputs, targets, labelled), weights, shares, key)
        return (loss,) if self.client.entries is None else (loss, self.client.network.statistics())

    def _autocast(self) -> AbstractContextManager[object]:
        if self.precision != "bf16":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False)

    def _compute(self, stack: Sequence[Trajectory], shape: StackShape) -> Tensor:
        """Δθ of every trajectory (its gradient for single ones), in pieces that fit into memory."""
        compiled = self._in_compiled(stack)
        run = self._function(shape, compiled)
        # Later steps repeat the operations of the second, so two steps are enough before a recording.
        brief = self._function(replace(shape, minibatches=min(2, shape.minibatches)), compiled)

        def moved(most: int) -> Tensor:
            with torch.random.fork_rng(devices=[]):  # restores torch's generator
                return torch.cat(
                    [
                        self._recorder((shape, compiled), run, self._inputs.of(self._filled(p, shape), shape), brief)[
                            : len(p)
                        ].clone()
                        for p in _evenly(stack, most)
                    ]
                )

        result = self.most(len(stack), moved, self._forget)
        if self.prefetches:
            whole = len(stack) <= self.most.size
            self._inputs.prefetch(stack, shape, len(self._filled(stack, shape)) if whole else 0)
        return result

    def _in_compiled(self, stack: Sequence[Trajectory]) -> bool:
        """Whether a stack is computed by compiled code, which depends on its round and T alone."""
        now, steps = max(t.cohort.round for t in stack), max(t.steps for t in stack)
        if self.compiles is not None:
            self._compiled_last = self.compiles
            return self.compiles
        compiled, soon = (compiles_in(number, self.rounds, len(self.layout.names), steps) for number in (now, now + 1))
        if soon and not self._announced:
            self._announced = True
            self.notes.append(
                f"Round {now + 1 if compiled else now + 2} takes longer: the computation is compiled, which the "
                f"{self.rounds - now - (not compiled):,} rounds that are left repay."
            )
        self._compiled_last = compiled
        return compiled

    def _forget(self) -> None:
        """Release the memory of all recordings."""
        self._recorder.forget()
        self._sizes.clear()

    def _filled(self, stack: Sequence[Trajectory], shape: StackShape) -> Sequence[Trajectory]:
        """The stack, padded to a size that is already compiled if that less than doubles the work.

        Runs of a study end one after the other, and every new size needs a compilation.
        """
        sizes = self._sizes.setdefault(shape, set())
        size = min((known for known in sizes if len(stack) <= known <= 2 * len(stack)), default=len(stack))
        if self._compiled_last:
            sizes.add(size)
        return [*stack, *[stack[-1]] * (size - len(stack))]

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
            n = min(n, self.most.size)
            first = torch.zeros(n * b, dtype=torch.int64, device=self.device)
            batch = self.client.ready(self.client.train_examples[first], channels_last=False).fold(n, b)
            masks = {i: mask for i, mask in enumerate(batch.labelled or ()) if mask is not None}
            theta, weights, shares = (
                torch.zeros(n, size, device=self.device) for size in (self.layout.d, self.layout.tasks, b)
            )
            self._gradients(theta, batch.inputs, batch.targets, masks, weights, shares, first[:n])
            with torch.no_grad():
                self._reports.example_losses(theta[0], first[:1].expand(round_up(n * b, EXAMPLES)))
            del batch
        compile_all(dict.fromkeys(planned), self.stopping)

    def _function(self, shape: StackShape, compiled: bool) -> Callable[..., Tensor]:
        """The computation of a stack as a function of its inputs."""
        mapped = self._compiled if compiled else self._gradients

        def run(
            theta: Tensor,
            weights: Tensor,
            index: Tensor,
            shares: Tensor,
            key: Tensor,
            rate: Tensor,
            effects: Tensor | None = None,
            first: Tensor | None = None,
            active: Tensor | None = None,
            **more: Tensor,
        ) -> Tensor:
            def gradient(step: int) -> Callable[[Tensor], Tensor]:
                self._check_stopping()
                draws = None if effects is None else effects[step].flatten(0, 1)
                batch = self.client.ready(self.client.train_examples[index[step].flatten()], draws, channels_last=False)
                batch = batch.fold(*shares.shape)
                masks = {i: mask for i, mask in enumerate(batch.labelled or ()) if mask is not None}
                return lambda theta: mapped(theta, batch.inputs, batch.targets, masks, weights, shares, key[step])

            steps = (gradient(step) for step in range(shape.minibatches))
            entries, order = self.client.entries, self._order
            start = order.enter(theta)
            if shape.single:
                gradients = order.leave(next(steps)(start))
                return gradients if entries is None else entries.without_statistics(gradients)
            known = [] if first is None else [self.client.known(order.enter(first))]
            more = {name: order.enter(value) for name, value in more.items()}
            state = tuple(more[f"state{i}"] for i in range(len(more)) if f"state{i}" in more)
            after, state = descend(
                start,
                (g for source in (known, steps) for g in source),
                rate,
                shape.rule,
                [_term(kind, i, more) for i, kind in enumerate(shape.terms)],
                clip=shape.clip,
                state=state,
                active=active,
                entries=entries,
            )
            found = [order.leave(each) for each in (after - start, *(state if shape.keeps else ()))]
            return torch.cat(found, dim=1) if shape.keeps else found[0]

        return run


def _trajectory(work: Computation, me: Member) -> Trajectory | None:
    """What a client's script waits for, if that is a trajectory."""
    return Trajectory.of(cast("Descend | Gradient", work), me) if _moves(type(work)) else None


@functools.cache
def _moves(kind: type[Computation]) -> bool:
    """Whether computations of a kind are trajectories; asked for every client, which is slow of an abstract class."""
    return issubclass(kind, Descend | Gradient)


def _evenly(many: Any, most: int) -> list[Any]:
    """A sequence in parts of at most `most`. Sizes differ by at most one, the largest first.

    Smaller parts are padded to the largest, so that one size is compiled.
    """
    count = -(-len(many) // most)
    bounds = [-(-len(many) * i // count) for i in range(count + 1)]
    return [many[start:end] for start, end in pairwise(bounds)]


def _term(kind: tuple[Any, ...], i: int, tensors: dict[str, Tensor]) -> Term:
    """A stacked term from its class, its numbers and its tensors in the inputs of a computation."""
    cls, numbers = kind
    prefix = f"term{i}_"
    own = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    term: Term = cls(**dict(numbers), **own)
    return term
