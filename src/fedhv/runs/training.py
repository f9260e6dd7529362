"""A setting's `[training]`: the local training of all methods."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from fedhv.problem.norm_policy import Norm, check_norm
from fedhv.protocol.local import LocalTraining, Schedule
from fedhv.support.errors import InputError
from fedhv.support.numbers import check_at_least

LOCAL_NAMES = {"local_steps": "steps", "local_epochs": "epochs"}
"""Keys that have other names in `LocalTraining`; the other keys of local training have the same."""


@dataclass(frozen=True)
class Training:
    """The local training of all methods.

    Attributes:
        rounds: T.
        batch_size: b, the examples of a minibatch.
        local_steps: K, the steps that a client makes in a round.
        momentum: The momentum of SGD.
        sampling: "epochs" (shuffled, an incomplete last minibatch dropped, reshuffled until K steps are done) or
            "replacement" (every minibatch is drawn independently, as in the theory).
        local_epochs: Passes over a client's examples instead of `local_steps`.
        optimiser: The clients' optimiser: "sgd", "adam" or "adamw".
        nesterov: Whether SGD uses Nesterov momentum.
        weight_decay: λ of the clients' optimiser.
        betas: Of Adam.
        epsilon: Of Adam.
        clip: The largest norm of a client's gradient; larger ones are scaled down.
        keep_state: Whether clients keep their optimiser's state from round to round; else it starts afresh. Plain
            SGD has none.
        schedule: How the clients' learning rate changes over the rounds.
        norm: What becomes of the model's BatchNorm layers: "refuse", "frozen", "local", "average" or "group".
        scale: The unit of the tasks' losses: "none" leaves them as they are; with "initial" each is measured in units
            of its mean at the initial model.
    """

    rounds: int
    batch_size: int
    local_steps: int
    momentum: float = LocalTraining.momentum
    sampling: Literal["epochs", "replacement"] = LocalTraining.sampling
    local_epochs: int | None = None
    optimiser: Literal["sgd", "adam", "adamw"] = LocalTraining.optimiser
    nesterov: bool = LocalTraining.nesterov
    weight_decay: float = LocalTraining.weight_decay
    betas: tuple[float, ...] = LocalTraining.betas
    epsilon: float = LocalTraining.epsilon
    clip: float | None = LocalTraining.clip
    keep_state: bool = LocalTraining.keep_state
    schedule: Schedule = field(default_factory=Schedule)
    norm: Norm = "refuse"
    scale: Literal["none", "initial"] = "none"

    def __post_init__(self) -> None:
        check_norm("training.norm", self.norm)
        if self.scale not in ("none", "initial"):
            raise InputError(f"`training.scale` should be 'none' or 'initial'. Found '{self.scale}'.")
        check_at_least(1, self, "training", "rounds", "batch_size", "local_steps")
        if not 0 <= self.momentum < 1:
            raise InputError(f"`training.momentum` should be in [0, 1). Found {self.momentum}.")
        self.local(0.1)  # invalid values raise an error here, not when a run starts

    def local(self, learning_rate: float) -> LocalTraining:
        """The local training with this learning rate."""
        mine = {LOCAL_NAMES.get(each.name, each.name): getattr(self, each.name) for each in fields(self)}
        local: dict[str, Any] = {each.name: mine[each.name] for each in fields(LocalTraining) if each.name in mine}
        return LocalTraining(learning_rate=learning_rate, **local)
