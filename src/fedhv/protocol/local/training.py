"""The local training of a round: steps or epochs, minibatches, learning rate, update rule."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fedhv.support.errors import InputError, unknown
from fedhv.support.numbers import is_number

if TYPE_CHECKING:  # settings are read without PyTorch
    from fedhv.protocol.local.rules import UpdateRule

OPTIMISERS = ("sgd", "adam", "adamw")


@dataclass(frozen=True)
class LocalTraining:
    """The local training of a client: K steps on minibatches of b examples at rate η_ℓ.

    Attributes:
        steps: K.
        batch_size: b; a client with fewer examples uses all of them.
        learning_rate: η_ℓ.
        momentum: The momentum of SGD.
        sampling: "epochs" (shuffled epochs, an incomplete last minibatch dropped, reshuffled until K steps are done) or
            "replacement" (every minibatch is drawn independently, as in the theory).
        epochs: Passes over the client's examples instead of K steps: a client with more examples makes more steps.
        optimiser: "sgd", "adam" or "adamw".
        nesterov: Whether SGD uses Nesterov momentum.
        weight_decay: λ.
        betas: β₁ and β₂ of Adam.
        epsilon: ε of Adam.
        clip: The largest norm of a gradient; larger gradients are scaled down.
        keep_state: Whether a client keeps the optimiser's state between rounds; otherwise every round starts afresh.
    """

    steps: int = 10
    batch_size: int = 32
    learning_rate: float = 0.1
    momentum: float = 0.0
    sampling: Literal["epochs", "replacement"] = "epochs"
    epochs: int | None = None
    optimiser: Literal["sgd", "adam", "adamw"] = "sgd"
    nesterov: bool = False
    weight_decay: float = 0.0
    betas: tuple[float, ...] = (0.9, 0.999)
    epsilon: float = 1e-8
    clip: float | None = None
    keep_state: bool = False

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "epochs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"Local training: `{name}` should be at least 1. Found `{name} = {value}`.")
        if not 0 < self.learning_rate < math.inf:
            raise InputError(f"The local learning rate should be positive. Found {self.learning_rate}.")
        if not 0 <= self.momentum < 1:
            raise InputError(f"`momentum` should be in [0, 1). Found `momentum = {self.momentum}`.")
        if self.sampling not in ("epochs", "replacement"):
            raise InputError(f"`sampling` should be 'epochs' or 'replacement'. Found '{self.sampling}'.")
        if self.optimiser not in OPTIMISERS:
            raise unknown("optimiser", self.optimiser, OPTIMISERS)
        if self.nesterov and not (self.optimiser == "sgd" and self.momentum > 0):
            raise InputError('`nesterov` needs `optimiser = "sgd"` with a `momentum` above 0.')
        if self.momentum and self.optimiser != "sgd":
            raise InputError(f"`momentum` is of SGD. Found it with '{self.optimiser}'; set `betas` instead.")
        if self.keep_state and self.optimiser == "sgd" and not self.momentum:
            raise InputError(
                "`keep_state` keeps the optimiser's state between rounds, and plain SGD has none. Leave it out, or set "
                "`momentum` or another `optimiser`."
            )
        if not 0 <= self.weight_decay < math.inf:
            raise InputError(f"`weight_decay` should be 0 or more. Found {self.weight_decay}.")
        if len(self.betas) != 2 or not all(is_number(b) and 0 <= b < 1 for b in self.betas):
            raise InputError(f"`betas` should be two numbers in [0, 1). Found {list(self.betas)}.")
        if not 0 < self.epsilon < math.inf:
            raise InputError(f"`epsilon` should be positive. Found {self.epsilon}.")
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise InputError(f"`clip` should be positive. Found {self.clip}.")

    @property
    def rule(self) -> UpdateRule:
        """The update rule of a local step."""
        from fedhv.protocol.local.rules import SGD, Adam

        if self.optimiser == "sgd":
            return SGD(self.momentum, self.nesterov, self.weight_decay)
        beta1, beta2 = self.betas
        return Adam(beta1, beta2, self.epsilon, self.weight_decay, decoupled=self.optimiser == "adamw")

    def steps_of(self, examples: int) -> int:
        """K for a client with this many examples."""
        if self.epochs is None:
            return self.steps
        return self.epochs * max(1, examples // min(self.batch_size, examples))

    def minibatch_of(self, examples: int) -> int:
        """The size of the minibatches of a client with this many examples."""
        return self.batch_size if self.sampling == "replacement" else min(self.batch_size, examples)
