r"""Differential privacy of the reported losses: clip, add Gaussian noise, and account for the whole run.

A client clips every one of its m mean losses to $[0, C]$ and adds $\mathcal N(0, \sigma^2)$ to each with
$\sigma = z\,C\sqrt m$. Two reports of one client differ by at most $C\sqrt m$ in Euclidean norm for any examples, so
$z$ is the noise multiplier of the Gaussian mechanism. Negative values are then set to 0, which costs no privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedhv.engines import Choice, Engine, Sequential
from fedhv.problem.problem import Problem
from fedhv.problem.random import Purpose
from fedhv.protocol.exchange import Call, collect
from fedhv.protocol.fields import tensor_fields
from fedhv.protocol.request import Replies, Reply
from fedhv.support import toml
from fedhv.support.errors import FedHVError, InputError


@dataclass(frozen=True)
class ReportPrivacy:
    """Clips and noises the losses that a client reports.

    Attributes:
        clip: C, the largest reported loss; choose it a little above the largest plausible loss of a task.
        noise: z, the noise multiplier; 0 only clips and gives no guarantee.
    """

    clip: float
    noise: float

    def __post_init__(self) -> None:
        if not 0 < self.clip < math.inf:
            raise InputError(f"Report privacy: `clip` should be positive. Found `clip = {self.clip}`.")
        if not 0 <= self.noise < math.inf:
            raise InputError(f"Report privacy: `noise` should be 0 or more. Found `noise = {self.noise}`.")

    def sigma(self, tasks: int) -> float:
        """σ = zC√m, the standard deviation of the noise on every loss."""
        return self.noise * self.clip * math.sqrt(tasks)

    def protect_losses(self, losses: Tensor, rng: np.random.Generator) -> Tensor:
        """The report that may leave the client."""
        noise = rng.standard_normal(len(losses)) * self.sigma(len(losses))
        clipped = losses.double().nan_to_num(nan=self.clip).clamp(0, self.clip)  # NaN would pass the clamp
        return (clipped + torch.from_numpy(noise)).clamp(min=0).to(losses.dtype)

    @staticmethod
    def releases(reply: Reply) -> int:
        """How many times the mechanism is used on a reply: on losses, and on scores where there are some."""
        bounds = {about.bound for n, about in tensor_fields(type(reply)).items() if getattr(reply, n) is not None}
        return len(bounds & {"report", "score"})

    def protect(self, reply: Reply, rng: np.random.Generator) -> Reply:
        """A reply with its report protected. Replies without a report are unchanged."""
        reports = [name for name, about in tensor_fields(type(reply)).items() if about.bound == "report"]
        held = {name: value for name in reports if (value := getattr(reply, name)) is not None}
        protected = {name: self.protect_losses(value, rng) for name, value in held.items()}
        scores = [name for name, about in tensor_fields(type(reply)).items() if about.bound == "score"]
        unit = replace(self, clip=1.0)
        for name in scores:  # a release of its own, of numbers in [0, 1]
            protected[name] = unit.protect_losses(getattr(reply, name), rng).clamp(max=1)
        # The number of labels reveals something about the examples; only whether there are any is sent.
        counts = [name for name, about in tensor_fields(type(reply)).items() if about.bound == "count"]
        bare = {name: (value > 0).to(value) for name in counts if (value := getattr(reply, name)) is not None}
        # There is no such mechanism for metrics: a protected client measures none.
        if any(about.bound == "metric" for about in tensor_fields(type(reply)).values()):
            names = [name for name in ("metrics", "measured") if getattr(reply, name) is not None]
            bare |= {name: torch.zeros_like(getattr(reply, name)) for name in names}
        return replace(reply, **protected, **bare) if protected or bare else reply


class PrivateReports(Sequential):
    """The sequential engine with protected reports, for studies of the effect of noise.

    The noise comes from the run's seed, so a study can be repeated. Nodes of a real federation draw it from their own
    entropy, because the noise can be removed if the seed is known.
    """

    def __init__(self, problem: Problem, privacy: ReportPrivacy) -> None:
        super().__init__(problem, "cpu")
        self.privacy = privacy

    def ask(self, call: Call) -> Replies:
        """The replies of the cohort, with protected reports."""
        answers = (
            self.privacy.protect(self.client.answer(call, k), call.cohort.stream(Purpose.PRIVACY, k))
            for k in call.cohort.clients
        )
        return collect(call, self.layout, answers, lambda k: self.client.holding(k).bare())


@dataclass(frozen=True)
class Privately(Choice):
    """The choice of a simulation with protected reports: `fedhv.run(…, engine=privately(ReportPrivacy(3, 1)))`."""

    privacy: ReportPrivacy | None = None

    def make(self, problem: Problem) -> Engine:
        """The engine, ready to answer."""
        assert self.privacy is not None
        return PrivateReports(problem, self.privacy)

    @property
    def fixes(self) -> dict[str, Any]:
        """Clip and noise affect the results."""
        return {"reports": toml.as_tables(self.privacy)}


def privately(privacy: ReportPrivacy) -> Privately:
    """The choice of a simulation with protected reports."""
    reason = f"reports clipped to {privacy.clip:g}, noise multiplier {privacy.noise:g}"
    return Privately("private reports", torch.device("cpu"), "float32", reason, privacy=privacy)


@dataclass(frozen=True)
class Spent:
    """The (ε, δ) of a run's reports, for one client's whole dataset.

    Attributes:
        to_server: ε towards the server, which receives every report. A client participates in at most `rounds_of_one`
            rounds, and sampling gives no amplification.
        to_others: ε towards others, who see only weights and models and do not know the cohorts. Every round draws M of
            N clients, which gives amplification by sampling. It holds if each draw is uniform from all N, as in the
            simulation by default. On Flower, draws are from the available nodes, which may be hardly more than M: use
            `to_server` only.
        delta: δ of both.
        rounds_of_one: The number of rounds of one client that `to_server` assumes.
    """

    to_server: float
    to_others: float
    delta: float
    rounds_of_one: int


def spent(
    privacy: ReportPrivacy,
    *,
    rounds: int,
    participants: int,
    clients: int,
    delta: float = 1e-5,
    rounds_of_one: int | None = None,
) -> Spent:
    """The privacy cost of the reports of a whole run, by Rényi accounting (the library dp-accounting).

    Neighbouring datasets differ in all examples of one client. Only the reports are accounted for, not the model
    updates.

    Args:
        privacy: The clipping and noise of the reports.
        rounds: T. If rounds may be repeated, every attempt counts, because clients report in each.
        participants: M.
        clients: N.
        delta: δ.
        rounds_of_one: The largest number of rounds of one client; by default all rounds.
    """
    for name, value in (("rounds", rounds), ("participants", participants), ("clients", clients)):
        if value < 1:
            raise InputError(f"Privacy accounting: `{name}` should be at least 1. Found {value}.")
    if participants > clients:
        raise InputError(f"M should be at most N = {clients}. Found M = {participants}.")
    if not 0 < delta < 1:
        raise InputError(f"`delta` should be between 0 and 1. Found {delta}.")
    often = rounds if rounds_of_one is None else rounds_of_one
    if not 1 <= often <= rounds:
        raise InputError(f"`rounds_of_one` should be between 1 and {rounds}. Found {often}.")
    if privacy.noise == 0:
        return Spent(math.inf, math.inf, delta, often)
    dp = _library()
    alone = dp.GaussianDpEvent(privacy.noise)
    server = _epsilon(dp, alone, often, delta)
    if participants == clients:
        return Spent(server, server, delta, often)
    # The second observer knows less, so its ε is at most the first. With little noise the sampled bound is looser.
    hidden = _epsilon(dp, dp.SampledWithoutReplacementDpEvent(clients, participants, alone), rounds, delta)
    return Spent(server, min(server, hidden), delta, often)


def _epsilon(dp: Any, event: Any, times: int, delta: float) -> float:
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    accountant.compose(event, times)
    return float(accountant.get_epsilon(delta))


def _library() -> Any:
    try:
        import dp_accounting
    except ImportError:
        raise FedHVError("Accounting for privacy needs dp-accounting: pip install 'fedhv[privacy]'.") from None
    return dp_accounting
