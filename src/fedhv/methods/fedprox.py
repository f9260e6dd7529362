"""FedProx: federated averaging whose clients stay near the model that they received (Li et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedhv.methods.base import Conversation, Method, State
from fedhv.protocol.local import Proximal, Term
from fedhv.protocol.requests import Train
from fedhv.protocol.script import Member
from fedhv.support.errors import InputError
from fedhv.support.numbers import is_number


@dataclass(frozen=True)
class FedProxTrain(Train):
    r"""Training on $\sum_i w_i \ell_i + \frac{\mu}{2}\|\theta - \theta^t\|^2$."""

    name: ClassVar[str] = "fedprox"

    mu: float = 0.01

    def terms(self, me: Member) -> tuple[Term, ...]:
        """The proximal term."""
        return (Proximal(self.mu, self.model),)


@dataclass(frozen=True, kw_only=True)
class FedProx(Method):
    """Federated averaging of the mean task loss with a proximal term on the clients.

    Attributes:
        mu: μ, the weight of the proximal term; 0 is federated averaging.
    """

    name: ClassVar[str] = "fedprox"

    mu: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_number(self.mu) or not 0 <= self.mu < float("inf"):
            raise InputError(f"Method 'fedprox': `mu` should be at least 0 and finite. Found {self.mu!r}.")

    def round(self, state: State) -> Conversation:
        """One round."""
        replies = yield FedProxTrain(state.model, mu=float(self.mu))
        return State(model=state.model + self.server_lr * replies.mean_update, weights=state.weights)
