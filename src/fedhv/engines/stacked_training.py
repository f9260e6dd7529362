"""How a stack of trajectories is computed: in portions that fit into memory, compiled or not.

On a GPU a round is recorded once and then replayed as a CUDA graph. A run begins without compilation; long runs are
compiled between two rounds (see `switching`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from fedhv.engines.graphs import Recorder
from fedhv.engines.portions import Portion
from fedhv.engines.stack_inputs import StackInputs
from fedhv.engines.stacked_steps import StackedSteps
from fedhv.engines.switching import compiles_in
from fedhv.engines.trajectories import StackShape, Trajectory
from fedhv.engines.weight_order import WeightOrder
from fedhv.protocol.client import Client

SCALARS = 360_000_000
"""The number of parameters of stacked models that saturates a GPU. More at once only need more memory."""


class StackedTraining:
    """Computes stacks of trajectories. If one fails, the next way is simpler (see `simplify`).

    Args:
        client: The engine's client.
        steps: The local steps as functions of tensors.
        recorder: Of CUDA graphs.
        compiles: Whether rounds are compiled: all, none, or (None) from a round on if there are many.
        rounds: Returns T.
        notes: The list that receives messages for the user.
    """

    def __init__(
        self,
        client: Client,
        steps: StackedSteps,
        recorder: Recorder,
        compiles: bool | None,
        rounds: Callable[[], int],
        notes: list[str],
    ) -> None:
        self._layout, self._steps, self._rounds, self._notes = client.layout, steps, rounds, notes
        self.recorder = recorder
        self.compiles = compiles
        self.compiled_last = False
        """Whether the last stack was computed by compiled code."""
        self.prefetches = recorder.records
        """Whether the draws of the next round are made ahead."""
        self.most = Portion(
            SCALARS // client.layout.d,
            "GPU memory is short: trajectories are computed {size} at a time.",
            "One client does not fit into the GPU's memory. Use a smaller batch size.",
            notes,
            client.device,
        )
        """The number of trajectories that are computed at once."""
        self.inputs = StackInputs(client.problem, client.device)
        self.sizes: dict[StackShape, set[int]] = {}
        """The sizes of stacks that are compiled already."""
        self._announced = False
        self._proven = steps.order

    def use(self, order: WeightOrder) -> None:
        """Begin with this order of weights; the model is a new one."""
        self._steps.use(order)
        self._proven = order

    def __call__(self, stack: Sequence[Trajectory], shape: StackShape) -> Tensor:
        """Δθ of every trajectory (its gradient for single ones), as rows of one tensor."""
        found = self.compute(stack, shape)
        self._proven = self._steps.order
        return found

    def compute(self, stack: Sequence[Trajectory], shape: StackShape) -> Tensor:
        """The same, in pieces that fit into memory."""
        compiled = self._in_compiled(stack)
        run = self._steps.function(shape, compiled)
        # Later steps repeat the operations of the second, so two steps are enough before a recording.
        brief = self._steps.function(replace(shape, minibatches=min(2, shape.minibatches)), compiled)

        def moved(most: int) -> Tensor:
            with torch.random.fork_rng(devices=[]):  # restores torch's generator
                return torch.cat(
                    [
                        self.recorder((shape, compiled), run, self.inputs.of(self._filled(p, shape), shape), brief)[
                            : len(p)
                        ].clone()
                        for p in evenly(stack, most)
                    ]
                )

        result = self.most(len(stack), moved, self.forget)
        if self.prefetches:
            whole = len(stack) <= self.most.size
            self.inputs.prefetch(stack, shape, len(self._filled(stack, shape)) if whole else 0)
        return result

    def simplify(self, why: str) -> bool:
        """After a failure, stop using an own order of weights, then compilation, then CUDA graphs; False if all are."""
        if self._steps.order.changes:  # a model may view its weights in a way that needs their usual order
            self._steps.use(WeightOrder(self._layout, {}))
            return True
        self._steps.use(self._proven)  # if the order was changed for this failure, it was not the reason
        if self.compiled_last:
            self.compiles = self.compiled_last = False
            self._notes.append(f"The stack is computed without compilation, which failed: {why}.")
        elif self.recorder.records:
            self.recorder = Recorder(torch.device("cpu"))  # calls functions without recording
            self._notes.append(f"The stack is computed without CUDA graphs, which failed: {why}.")
        else:
            return False
        return True

    def forget(self) -> None:
        """Release the memory of all recordings, and of draws for the next round."""
        self.inputs.forget()
        self.recorder.forget()
        self.sizes.clear()

    def _in_compiled(self, stack: Sequence[Trajectory]) -> bool:
        """Whether a stack is computed by compiled code, which depends on its round and T alone."""
        now, steps, rounds = max(t.cohort.round for t in stack), max(t.steps for t in stack), self._rounds()
        if self.compiles is not None:
            self.compiled_last = self.compiles
            return self.compiles
        compiled, soon = (compiles_in(number, rounds, len(self._layout.names), steps) for number in (now, now + 1))
        if soon and not self._announced:
            self._announced = True
            self._notes.append(
                f"Round {now + 1 if compiled else now + 2} takes longer: the computation is compiled, which the "
                f"{rounds - now - (not compiled):,} rounds that are left repay."
            )
        self.compiled_last = compiled
        return compiled

    def _filled(self, stack: Sequence[Trajectory], shape: StackShape) -> Sequence[Trajectory]:
        """The stack, padded to a size that is already compiled if that less than doubles the work.

        Runs of a study end one after the other, and every new size needs a compilation.
        """
        sizes = self.sizes.setdefault(shape, set())
        size = min((known for known in sizes if len(stack) <= known <= 2 * len(stack)), default=len(stack))
        if self.compiled_last:
            sizes.add(size)
        return [*stack, *[stack[-1]] * (size - len(stack))]


def evenly(many: Any, most: int) -> list[Any]:
    """A sequence in parts of at most `most`. Sizes differ by at most one, the largest first.

    Smaller parts are padded to the largest, so that one size is compiled.
    """
    count = -(-len(many) // most)
    bounds = [-(-len(many) * i // count) for i in range(count + 1)]
    return [many[start:end] for start, end in pairwise(bounds)]
