"""The privacy cost of the reports of a whole run, with and without sampling of clients, by Rényi accounting."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from fedhv.protocol.report_privacy import ReportPrivacy
from fedhv.support.errors import FedHVError, InputError


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
