"""The simulation with protected reports (`protocol.report_privacy`), for studies of the effect of noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from fedhv.engines import Choice, Engine, Sequential
from fedhv.problem.problem import Problem
from fedhv.problem.random import Purpose
from fedhv.protocol.exchange import Call, collect
from fedhv.protocol.report_privacy import ReportPrivacy
from fedhv.protocol.request import Replies
from fedhv.support import toml


class PrivateReports(Sequential):
    """The sequential engine with protected reports.

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
