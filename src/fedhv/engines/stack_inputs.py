"""The inputs of a stack's computation, as tensors of fixed shape; random draws are made and sent a round ahead."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import torch
from torch import Tensor

from fedhv.engines.portions import suppress_out_of_memory
from fedhv.engines.prefetch import Place, Prefetcher
from fedhv.engines.trajectories import StackShape, Trajectory
from fedhv.problem.counter import keys
from fedhv.problem.problem import Problem
from fedhv.problem.random import Purpose
from fedhv.protocol.local import stack_terms
from fedhv.support.transfers import to_device


class StackInputs:
    """Makes the inputs of stacks on a device."""

    def __init__(self, problem: Problem, device: torch.device) -> None:
        self._problem, self._device = problem, device
        self.prefetcher = Prefetcher(problem)
        self._ahead: dict[StackShape, tuple[Hashable, dict[str, Tensor]]] = {}
        """The draws for the next round, with what they depend on; a round may have stacks of several shapes."""

    def of(self, stack: Sequence[Trajectory], shape: StackShape) -> dict[str, Tensor]:
        """All inputs of the computation of one stack."""
        # For draws that keys do not cover: they repeat if the stack is the same.
        _seed(stack[0].cohort.torch_seed(Purpose.DROPOUT, stack[0].client, stack[0].part), self._device)
        places = [Place(t.cohort, t.client, t.part) for t in stack]
        inputs: dict[str, Tensor] = {
            "theta": torch.stack([t.model for t in stack]),
            "weights": to_device(torch.stack([t.weights for t in stack]), self._device),
            "rate": self._here(np.array([[t.cohort.local.learning_rate] for t in stack], np.float32)),
        }
        inputs |= self._ahead[shape][1] if self._is_ahead(places, shape) else self.drawn(places, shape)
        if shape.known:
            inputs["first"] = torch.stack([t.first for t in stack if t.first is not None])
        if shape.unequal:
            done = np.array([t.steps + shape.known for t in stack])
            active = np.arange(shape.minibatches + shape.known)[:, None] < done
            inputs["active"] = self._here(active[..., None])
        if shape.resumes:
            states = zip(*(t.state for t in stack), strict=True)
            inputs |= {f"state{i}": torch.stack(each) for i, each in enumerate(states)}
        for i in range(len(shape.terms)):
            term = stack_terms([t.terms[i] for t in stack])
            inputs |= {f"term{i}_{name}": value for name, value in term.tensors.items()}
        return inputs

    def drawn(self, places: Sequence[Place], shape: StackShape) -> dict[str, Tensor]:
        """The inputs that are random draws; they may be made before the models are known."""
        b = shape.batch_size
        # Runs with the same seed have the same draws, and a study has many of them.
        own = {place.key: place for place in places}
        number = {key: j for j, key in enumerate(own)}
        which = np.array([number[place.key] for place in places])
        draws = [self.prefetcher.of(place, shape) for place in own.values()]
        index = np.zeros((shape.minibatches, len(own), b), np.int64)
        shares = np.zeros((len(own), b), np.float32)
        for j, (place, (positions, _)) in enumerate(zip(own.values(), draws, strict=True)):
            # A client with fewer examples than a minibatch repeats its first example with share 0.
            size = positions.shape[1]
            index[: len(positions), j] = self._problem.clients[place.client][_padded(positions, b)]
            shares[j, :size] = 1 / size
        key = keys(Purpose.DROPOUT, list(own), len(index))
        inputs = {"index": index[:, which], "shares": shares[which], "key": key[:, which]}
        effects = [effect for _, effect in draws if effect is not None]
        if effects:  # a client with fewer steps or examples than others has zeros behind its own
            whole = np.zeros((len(index), len(own), b, *effects[0].shape[2:]), effects[0].dtype)
            for j, effect in enumerate(effects):
                whole[: len(effect), j, : effect.shape[1]] = effect
            inputs["effects"] = whole[:, which]
        return {name: self._here(each) for name, each in inputs.items()}

    def prefetch(self, stack: Sequence[Trajectory], shape: StackShape, size: int) -> None:
        """Draw for the next round; if its stack is known, and has this size when it is padded, send the draws ahead."""
        following = self.prefetcher.prefetch(stack, shape)
        if following is not None and size:
            following = [*following, *[following[-1]] * (size - len(stack))]
            if not self._is_ahead(following, shape):
                self._ahead.pop(shape, None)  # the last round's make space first
                with suppress_out_of_memory():  # they are made when they are needed then
                    self._ahead[shape] = tuple(place.draws for place in following), self.drawn(following, shape)

    def forget(self) -> None:
        """Release the draws for the next round: they are sent again."""
        self._ahead.clear()

    def _is_ahead(self, places: Sequence[Place], shape: StackShape) -> bool:
        """Whether the draws of these places are there already."""
        return shape in self._ahead and self._ahead[shape][0] == tuple(place.draws for place in places)

    def _here(self, array: np.ndarray) -> Tensor:
        return to_device(array, self._device)


def _seed(seed: int, device: torch.device) -> None:
    """Seed torch's generators of the host and of a GPU; `torch.manual_seed` takes long, for devices that are absent."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.default_generators[index].manual_seed(seed)


def _padded(draws: np.ndarray, b: int) -> np.ndarray:
    """Draws of shape (steps, size, …) with zeros up to (steps, b, …)."""
    if draws.shape[1] == b:
        return draws
    return np.pad(draws, ((0, 0), (0, b - draws.shape[1]), *[(0, 0)] * (draws.ndim - 2)))
