"""A method in thirty lines, compared with the others.

A task has a larger weight if its loss has fallen more *slowly* since the first round than the losses of other tasks.
This is the idea of dynamic weight averaging, with one exchange per round. The first losses are kept in the state's
memory, so that runs resume exactly.

    python examples/new_method.py
    fedhv compare digits --methods fedhv,uniform,examples.new_method:SlowestFirst --seeds 0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

import fedhv


@dataclass(frozen=True, kw_only=True)
class SlowestFirst(fedhv.Method):
    """Weights ∝ exp(f_i(now) / f_i(first) / temperature)."""

    name = "slowest-first"
    temperature: float = 0.5

    def start(self, model, tasks):
        return replace(super().start(model, tasks), memory={"first": torch.zeros(tasks)})

    def round(self, state):
        replies = yield fedhv.Train(state.model, state.weights, report="all")
        losses = replies.mean_report().float()
        first = state.memory["first"].cpu()
        first = torch.where(first > 0, first, losses)
        return fedhv.State(
            model=state.model + self.server_lr * replies.mean_update,
            weights=torch.softmax(losses / first / self.temperature, dim=0),
            memory={"first": first.to(state.model.device)},
            record={"report": losses.tolist()},
        )


def main(rounds: int = 40) -> fedhv.Study:
    methods = [SlowestFirst(local_lr=0.3), fedhv.FedHV(local_lr=0.3), fedhv.Uniform(local_lr=0.3)]
    return fedhv.compare("digits", methods, [0], rounds=rounds, override=["evaluation.every=0"])


def show(runs: Sequence[fedhv.Run]) -> None:
    for run in runs:
        scores = "  ".join(f"{task.name} {task.accuracy:.1f} %" for task in run.tasks)
        weights = ", ".join(f"{weight:.2f}" for weight in run.weights)
        print(f"{run.method:14} {scores}  last weights {weights}")


if __name__ == "__main__":
    show(main())
