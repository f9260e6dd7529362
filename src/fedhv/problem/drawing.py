"""The random draws of a model's passes, as functions of a key, with as little interception as the model needs.

`Draws` intercepts every call of a pass, which takes a twentieth of a small model's step on a CPU. The draws of most
models are those of their layers `nn.Dropout`. These layers can take their draws themselves, with the same numbers, and
nothing has to be intercepted. The first training pass of a model is intercepted and shows whether that is so. Draws of
small layers are then made for all steps of a client at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Self, TypeVar

import torch
from torch import Tensor, nn

from fedhv.problem.counter import KEPT
from fedhv.problem.dropout import Draws, factors
from fedhv.problem.pooling import hooked

T = TypeVar("T")

DropoutCall = tuple[torch.Size, float]
"""The shape of a dropout layer's inputs, and p."""


class Drawing:
    """Runs the training passes of one network."""

    def __init__(self) -> None:
        self.draws: Draws | None = None
        """The draws of the present pass, if layers take them themselves."""
        self.calls: list[DropoutCall] = []
        """The draws of layers in the present pass."""
        self._found: Literal["nothing", "layers", "anything"] | None = None
        """What the model draws from; None before the first pass."""
        self._ahead: dict[int, list[tuple[DropoutCall, Tensor]]] = {}
        """The factors of the layers in coming passes, by key."""
        self._ready: list[tuple[DropoutCall, Tensor]] = []

    def __deepcopy__(self, memo: object) -> Self:
        """A copy of a model is another form of it, for the same network."""
        return self

    def prepare(self, keys: Sequence[int]) -> None:
        """Make the draws of coming passes, if these are small and the passes are like the last one."""
        self._ahead = {}
        sizes = [shape.numel() for shape, p in self.calls if p < 1]
        if self._found != "layers" or len(sizes) < len(self.calls) or len(keys) * max(sizes, default=0) > KEPT:
            return
        drawn = [factors(keys, 1 + i, shape, p).unbind() for i, (shape, p) in enumerate(self.calls)]
        passes = zip(*drawn, strict=True)
        self._ahead = {key: list(zip(self.calls, each, strict=True)) for key, each in zip(keys, passes, strict=True)}

    def __call__(self, key: int | Tensor, forward: Callable[[], T]) -> T:
        """The result of a pass whose draws are functions of the key."""
        if isinstance(key, Tensor) and self._found == "nothing":
            return forward()
        if isinstance(key, Tensor) or self._found in (None, "anything"):
            return self._intercepted(key, forward)
        generator = torch.default_generator
        before = generator.get_state()
        self.draws, self.calls, self._ready = Draws(key), [], self._ahead.pop(key, [])
        try:
            result = forward()
        finally:
            self.draws = None
        if torch.equal(generator.get_state(), before):
            return result
        # It draws elsewhere after all, which the first pass did not show. This pass is repeated with the key's draws.
        self._found = "anything"
        generator.set_state(before)
        return self._intercepted(key, forward)

    def _intercepted(self, key: int | Tensor, forward: Callable[[], T]) -> T:
        self.calls = []
        with Draws(key) as draws:
            result = forward()
        if self._found is None:
            self._found = "anything" if draws.count > len(self.calls) else "layers" if draws.count else "nothing"
        return result

    def factor(self, draws: Draws, inputs: Tensor, call: DropoutCall) -> Tensor:
        """The factor of a layer's dropout."""
        if draws.count < len(self._ready):
            expected, made = self._ready[draws.count]
            if expected == call and inputs.dtype == made.dtype:
                draws.count += 1
                return made
        return draws.dropped(inputs, call[1])


class KeyedDropout(nn.Dropout):
    """Dropout that takes its draws itself if the pass is not intercepted."""

    def __init__(self, layer: nn.Dropout, drawing: Drawing) -> None:
        super().__init__(layer.p, layer.inplace)
        self.drawing = drawing

    def _get_name(self) -> str:
        """The name in the model's text, which is part of a run's fingerprint: the model is the user's own."""
        return "Dropout"

    def forward(self, inputs: Tensor) -> Tensor:
        """The inputs, with a part of them set to zero in training."""
        if not self.training or self.p == 0:
            return inputs
        drawing, call = self.drawing, (inputs.shape, self.p)
        drawing.calls.append(call)
        if drawing.draws is None:
            return super().forward(inputs)
        factor = drawing.factor(drawing.draws, inputs, call)
        return inputs.mul_(factor) if self.inplace else inputs * factor


def with_keyed_dropout(module: nn.Module, drawing: Drawing) -> nn.Module:
    """The module with its plain dropout layers replaced by layers that can take their draws themselves."""
    for parent in list(module.modules()):
        for name, layer in parent._modules.items():
            if type(layer) is nn.Dropout and not hooked(layer):
                parent._modules[name] = KeyedDropout(layer, drawing).train(layer.training)
    return module
