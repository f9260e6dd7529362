"""The effect of differentially private reports on the report error Ξ, the weights and the accuracies.

FedHV on the embedded benchmark, 20 clients, 5 of them in every round, full reports. F(θᵗ) is computed in every round
from all clients' examples, so Ξ = max_t E‖F̂ᵗ − F(θᵗ)‖²_∞ is measured, as a mean over seeds. The table also has the mean
error over all rounds, which needs fewer seeds. The noise adds at most mσ²/M to each of them.

    python benchmarks/report_privacy.py > results/privacy/report-error.txt
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
import torch

import fedhv
from fedhv.engines import Choice, Engine
from fedhv.engines.private import PrivateReports
from fedhv.problem.problem import Problem
from fedhv.protocol.privacy_cost import spent
from fedhv.protocol.report_privacy import ReportPrivacy
from fedhv.protocol.requests import Train
from fedhv.runs.resolve import resolve
from fedhv.theory import measured_report_error, report_errors

CLIP = 3.0
"""An untrained model's loss on ten classes is log 10 = 2.3."""
LEVELS = (None, 0.02, 0.1, 0.5, 2.0, 8.0)


class Measured(PrivateReports):
    """Computes the global losses in every round of the run."""

    def __init__(self, problem: Problem, privacy: ReportPrivacy, truth: list[np.ndarray]) -> None:
        super().__init__(problem, privacy)
        self._truth = truth

    def ask(self, call):
        if isinstance(call.request, Train):
            clients, theta = range(len(self.problem.clients)), call.request.model
            losses = [self.client.losses(theta, np.arange(self.client.examples(k)), k).double() for k in clients]
            self._truth.append(torch.stack(losses).mean(dim=0).numpy())
        return super().ask(call)


@dataclass(frozen=True)
class Measuring(Choice):
    privacy: ReportPrivacy | None = None
    truth: tuple[list[np.ndarray], ...] = ()

    def make(self, problem: Problem) -> Engine:
        return Measured(problem, self.privacy or ReportPrivacy(1e6, 0.0), self.truth[0])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=30)
    options.add_argument("--seeds", type=int, default=3)
    given = options.parse_args()
    setting, problem = resolve("digits", ["evaluation.every=0"], given.rounds)
    m, M, N = len(problem.tasks), setting.federation.participants, setting.federation.clients
    reference = fedhv.calibrate(setting)
    print(f"FedHV on digits, N = {N}, M = {M}, T = {given.rounds}, {given.seeds} seeds, clip C = {CLIP:g}, δ = 1e-5")
    print(f"reference {', '.join(f'{r:.3f}' for r in reference.values)}\n")
    heads = (("noise z", 8), ("σ", 7), ("ε server", 9), ("ε others", 9), ("Ξ", 9), ("mean", 9), ("mσ²/M", 8))
    print(" ".join(f"{head:>{width}}" for head, width in (*heads, ("worst %", 8), ("mean %", 7))))
    for level in LEVELS:
        privacy = None if level is None else ReportPrivacy(CLIP, level)
        reports, losses, worst, mean = [], [], [], []
        for seed in range(given.seeds):
            truth: list[np.ndarray] = []
            choice = Measuring("measured", torch.device("cpu"), "float32", privacy=privacy, truth=(truth,))
            result = fedhv.run(setting, "fedhv", seed=seed, engine=choice, reference=reference)
            reports.append([played.report for played in result.rounds])
            losses.append(truth)
            worst.append(result.worst_accuracy)
            mean.append(result.mean_accuracy)
        xi = measured_report_error(np.array(reports), np.array(losses))
        typical = report_errors(np.array(reports), np.array(losses)).mean()
        sigma = privacy.sigma(m) if privacy else 0.0
        cost = spent(privacy, rounds=given.rounds, participants=M, clients=N) if level else None
        name = "no clip" if level is None else f"{level:g}"
        server, others = (f"{cost.to_server:.3g}", f"{cost.to_others:.3g}") if cost else ("∞", "∞")
        print(
            f"{name:>8} {sigma:7.3f} {server:>9} {others:>9} {xi:9.4f} {typical:9.4f} {m * sigma**2 / M:8.4f} "
            f"{np.mean(worst):8.2f} {np.mean(mean):7.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
